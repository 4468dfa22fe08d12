"""Journals read from their first record on: archive, replay, time travel, bounds of trimming."""
