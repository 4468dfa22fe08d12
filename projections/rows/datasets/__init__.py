"""Datasets to rows: comparisons of versions."""
