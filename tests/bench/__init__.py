"""Figures, measured beside their peers: `make bench`, or `python -m tests.bench NAME` for one.

Holds: a figure is printed as one JSON line with its aim and, where there is one, the peer's figure from the same run.
Never: part of a timed test.
"""
