"""The node agent: turns allocations into running ranks, and what ranks write into events.

Holds: `core` decides and is pure; everything else is its shell. One agent per folder and node.
Never: decides where a job runs, or loses what a rank wrote.
"""
