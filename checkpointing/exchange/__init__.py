"""Checkpoints in formats of other programs: export into them, import from them."""
