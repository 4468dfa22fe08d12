"""The node itself: registration, heartbeats, devices, termination notices."""
