"""Commands about nodes, pools and policies, and emulated or simulated fleets."""
