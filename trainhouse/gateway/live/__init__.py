"""Live streams: events of jobs as server-sent events.

Holds: one follower of the status topic and one poller of the projections serve all watchers, however many they are.
"""
