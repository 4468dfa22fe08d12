"""Tunnels between users and interactive jobs: the bytes within, and the calls of both ends. Pure."""
