"""Models over HTTP: a follower of the registry, and its routes."""
