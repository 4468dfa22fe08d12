"""Periodic timers that survive wall-clock jumps.

Holds: after any jump of the clock it comes within its time; otherwise an agent whose clock was an hour ahead would sleep for that hour.
"""


def due(at_ms: int, now_ms: int, every_ms: int) -> bool:
    """Returns whether a timer of `every_ms` is due, `at_ms` being its next time; also when the clock was set back beyond that."""
    return not at_ms - every_ms <= now_ms < at_ms
