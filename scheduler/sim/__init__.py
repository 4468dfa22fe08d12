"""The scheduler under virtual time: the same book and cycle, driven by a trace instead of a journal."""
