"""Rows of studies."""
