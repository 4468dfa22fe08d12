"""Runs beside each other and in lists: their parameters, names, tags, what parameters matter, and where code and environment differ."""
