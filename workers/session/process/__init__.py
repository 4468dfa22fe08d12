"""The rank's process: background thread, exit, flight recorder, random generators."""
