"""Signatures, keys, grants, and masks of what looks like a secret."""
