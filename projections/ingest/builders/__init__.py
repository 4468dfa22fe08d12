"""Builders of row batches, one for each kind of topic."""
