"""The supervisor's process: `supervisord` with a count of restarts and a bound on its pauses between them.

Always: holds the data folder's lock for its whole life, through a descriptor that `up` handed over; a part that keeps
dying is tried again after ten seconds at most, for ever.  Never: state on disk.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from supervisor import events, states
from supervisor.supervisord import main

MAX_BACKOFF_S = 10
# What a part was before a start that nobody asked for.
DIED = (states.ProcessStates.EXITED, states.ProcessStates.BACKOFF, states.ProcessStates.UNKNOWN)


class Restarts:
    """What `trainhouse.restarts` answers over the supervisor's socket."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        events.subscribe(events.ProcessStateStartingEvent, self._count)
        events.subscribe(events.ProcessStateBackoffEvent, self._bound_pause)

    def restarts(self) -> dict[str, int]:
        """How often each part was started again after it had died, since `up`."""
        return dict(self._counts)

    def _count(self, event: Any) -> None:
        if event.from_state in DIED:
            self._counts[event.process.config.name] += 1

    def _bound_pause(self, event: Any) -> None:
        # The supervisor waits one second more after each failed start, without an end; its `startretries` compares
        # with the same number, so a bound here also means that it never gives up.
        process = event.process
        if process.backoff > MAX_BACKOFF_S:
            process.delay -= process.backoff - MAX_BACKOFF_S
            process.backoff = MAX_BACKOFF_S


def make_restarts(_supervisord: object, **_config: str) -> Restarts:
    """The factory that the supervisor's configuration names."""
    return Restarts()


if __name__ == "__main__":
    main()
