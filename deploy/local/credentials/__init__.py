"""Passwords, keys and accounts of a local stack, and their rotation."""
