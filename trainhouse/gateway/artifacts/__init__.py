"""Artifacts over HTTP."""
