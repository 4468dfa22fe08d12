"""Readability of a file descriptor, whatever its number: `select.select` knows those below 1,024 alone."""

import math
import select


def readable(fd: int, wait_s: float) -> bool:
    """True once there is something to read, or its other end is closed; False after `wait_s`. Blocks."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(math.ceil(max(0.0, wait_s) * 1000)))
