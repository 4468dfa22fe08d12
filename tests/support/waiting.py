"""Waiting in tests: by condition, with a limit, and with what is seen when it does not come."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# At first, and the most: a look at a whole stack (a query and a consumer) takes a tenth of a second of CPU time, which at the first pace
# is half a core for as long as a job trains. The most is how often `trainhouse wait` looks.
FIRST_EVERY_S, MOST_EVERY_S = 0.1, 0.5
# Of the time that it has waited already, it may be so much late.
LATE = 0.1


def until(
    found: Callable[[], T | None], told: str | Callable[[], object] = "", timeout_s: float = 150.0, every_s: float | None = None
) -> T:
    """The first true answer of `found`; blocks. Fails after `timeout_s` with `told`: what was waited for, or what is there
    instead. It looks `every_s`, which bounds how late it is; without it ten times a second at first, and twice where it waits for long."""
    began = time.monotonic()
    while not (answer := found()):
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {told() if callable(told) else told}")
        time.sleep(pause_s(waited_s) if every_s is None else every_s)
    return answer


def pause_s(waited_s: float) -> float:
    """The time until the next look of one that has waited so long."""
    return min(MOST_EVERY_S, max(FIRST_EVERY_S, LATE * waited_s))
