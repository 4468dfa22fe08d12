"""Policies as files: those that come with Trainhouse, and reading any."""
