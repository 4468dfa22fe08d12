"""Events in one line for a person."""
