"""Tombstones for what ended in compacted topics: what of a job that finished long ago SQL alone needs to know."""
