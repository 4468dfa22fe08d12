"""Waiting in tests: by condition, with a limit, and with what is seen when it does not come.

Holds: a look that a server does not answer in time, or that meets one which has just stopped and is on its way back, has seen nothing yet:
it is taken again until the limit. What is wrong for good is raised at once.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# No limit is an assertion about time: it ends a wait for what never comes, on a machine that has a hundred times as much to do as it can.
# Much less than the limit of a whole test (`timeout` in pyproject.toml).
PATIENCE_S = 480.0
# At first, and the most: a look at a whole stack (a query and a consumer) takes a tenth of a second of CPU time, which at the first pace
# is half a core for as long as a job trains. The most is how often `trainhouse wait` looks.
FIRST_EVERY_S, MOST_EVERY_S = 0.1, 0.5
# Of the time that it has waited already, it may be so much late.
LATE = 0.1


def until(
    found: Callable[[], T | None], told: str | Callable[[], object] = "", timeout_s: float = PATIENCE_S, every_s: float | None = None
) -> T:
    """The first true answer of `found`; blocks. Fails after `timeout_s` with `told`: what was waited for, or what is there
    instead. It looks `every_s`, which bounds how late it is; without it ten times a second at first, and twice where it waits for long."""
    began, silent = time.monotonic(), ""
    while True:
        try:
            if answer := found():
                return answer
            silent = ""
        except Exception as error:
            if not _passes(error):
                raise
            silent = f"; the last look: {error}"
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {_words(told)}{silent}")
        time.sleep(pause_s(waited_s) if every_s is None else every_s)


def answered(ask: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
    """The answer of a server, whatever it is, once it gives one; blocks."""
    return until(lambda: (ask(),), "the server answers", timeout_s)[0]


def pause_s(waited_s: float) -> float:
    """The time until the next look of one that has waited so long."""
    return min(MOST_EVERY_S, max(FIRST_EVERY_S, LATE * waited_s))


def _passes(error: Exception) -> bool:
    """Whether it says that a server does not answer now: the brokers, the object store, SQL."""
    from trainhouse.client.errors import NotReachableError
    from trainhouse.events.model.errors import BusUnavailableError

    return isinstance(error, NotReachableError | BusUnavailableError)


def _words(told: str | Callable[[], object]) -> object:
    if not callable(told):
        return told
    try:
        return told()
    except Exception as error:  # what is there is asked of the same servers
        return f"(it is not known what is there instead: {error})"
