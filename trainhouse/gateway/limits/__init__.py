"""Limits of requests: size, rate, queue, storage, connection timeouts."""
