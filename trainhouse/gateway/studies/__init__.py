"""Studies over HTTP."""
