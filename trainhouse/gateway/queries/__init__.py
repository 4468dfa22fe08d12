"""Queries to the projections: conditions, pages, freshness, redaction."""
