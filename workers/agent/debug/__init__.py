"""Debugging of running ranks: stacks, commands, dumps of the flight recorder, permissions."""
