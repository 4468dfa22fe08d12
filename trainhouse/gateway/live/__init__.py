"""Live streams: what happens to jobs, sent to whoever watches, as server-sent events.

Holds: one follower of the status topic and one poller of the projections serve all watchers, however many they are.
"""
