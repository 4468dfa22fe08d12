"""A job's commit chain in the object store: manifests, chunks, commits, retention."""
