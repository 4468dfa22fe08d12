"""Nodes, devices and topology as the placement sees them: integers and bit masks, no events."""
