"""Process side of the registry of models: what it looks up in the object store, and writes there."""
