"""Handlers of inputs: requests, reports, nodes, verdicts, timers, moves of pools."""
