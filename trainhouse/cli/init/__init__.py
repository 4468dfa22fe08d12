"""`trainhouse init`: a spec and the lines of a session for an existing script."""
