"""Artifacts of a project in the object store: manifests over content-addressed files, and the sweep of what nothing names."""
