"""Saving and restoring in a session: checkpoints, tracked state, saves for lost ranks."""
