"""Deployment of Trainhouse: `local/` is the whole stack on one machine, from packages alone."""
