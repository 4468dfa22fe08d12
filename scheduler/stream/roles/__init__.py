"""Composition roots: one module a process."""
