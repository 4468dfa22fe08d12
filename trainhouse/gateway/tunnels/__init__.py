"""Tunnels between users and the programs of interactive jobs."""
