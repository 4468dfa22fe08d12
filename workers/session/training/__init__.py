"""Essentials of a training loop that the spec sets: precision, accumulation, clipping, memory for time, determinism."""
