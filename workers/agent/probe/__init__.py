"""The self test of a node, in a process of its own."""
