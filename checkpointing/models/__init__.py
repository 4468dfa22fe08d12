"""Versions of models in the object store: contents, the chain of stages, fetching and checking them."""
