"""Logging of a session: the sink, environment, system metrics."""
