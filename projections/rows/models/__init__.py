"""Rows of models."""
