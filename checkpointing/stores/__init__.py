"""The port to an object store, and its implementations."""
