"""The shell of the failure detector."""
