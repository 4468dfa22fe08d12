"""Faults on the real stack while the example job runs, and an independent judge.

Holds: the judge reads only topics, the object store, SQL and the ranks' files; it shares no code with what it judges beyond the codec.
"""
