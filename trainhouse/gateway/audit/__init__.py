"""Audit events of requests."""
