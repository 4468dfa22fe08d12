"""The processes of a local stack under one supervisor: start, readiness, restart."""
