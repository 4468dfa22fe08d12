"""The events: one frozen model each, with their ids, bounds and errors."""
