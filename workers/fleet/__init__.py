"""The fleet emulator: thousands of node agents in one process, over real brokers, with only their ranks scripted.

Holds: every node runs the agent's own state machine, sends the agent's own reports and heartbeats, and obeys the same fences.
Never: starts a process or writes a file; an emulated node's disk is memory.
"""
