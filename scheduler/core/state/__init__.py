"""The scheduler's state over one partition: records, book, decisions on them, and snapshots."""
