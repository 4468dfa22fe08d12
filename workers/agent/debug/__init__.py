"""Debugging of running ranks: stacks, dumps of the flight recorder, permissions."""
