"""The index of settled jobs on disk."""
