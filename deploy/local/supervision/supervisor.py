"""The supervisor's process: `supervisord` with a count of restarts, a bound on its pauses between them, and starts by the clock.

Always: holds the data folder's lock for its whole life, through a descriptor that `up` handed over; a part that keeps
dying is tried again after ten seconds at most, for ever.  Never: state on disk; two runs of a timed part at once; a
start of one while the supervisor shuts down.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

from supervisor import events, states, supervisord
from supervisor.options import ServerOptions

from trainhouse.deploy.local.supervision import forked_parts, tether
from trainhouse.deploy.local.supervision.part_groups import TIMED

MAX_BACKOFF_S = 10
# What a part was before a start that nobody asked for.
DIED = (states.ProcessStates.EXITED, states.ProcessStates.BACKOFF, states.ProcessStates.UNKNOWN)


class Restarts:
    """Restart counter behind `trainhouse.restarts` on the supervisor's socket."""

    def __init__(self, timed: Container[str] = ()) -> None:
        self._timed = timed
        self._counts: Counter[str] = Counter()
        events.subscribe(events.ProcessStateStartingEvent, self._count)
        events.subscribe(events.ProcessStateBackoffEvent, self._bound_pause)

    def restarts(self) -> dict[str, int]:
        """Counts of restarts after a crash, by part, since `up`."""
        return dict(self._counts)

    def load(self) -> bool:
        """Imports what own parts share, so that each of them starts as a fork of this process. Blocks for about two seconds."""
        forked_parts.load()
        return True

    def _count(self, event: Any) -> None:
        name = event.process.config.name
        if event.from_state in DIED and name not in self._timed:
            self._counts[name] += 1

    def _bound_pause(self, event: Any) -> None:
        # The supervisor waits one second more after each failed start, without an end; its `startretries` compares
        # with the same number, so a bound here also means that it never gives up.
        process = event.process
        if process.backoff > MAX_BACKOFF_S:
            process.delay -= process.backoff - MAX_BACKOFF_S
            process.backoff = MAX_BACKOFF_S


class Timed:
    """Starts parts that run again and again and end by themselves: at the supervisor's first tick, then every so many seconds."""

    def __init__(self, supervisord: Any, every_s: Mapping[str, int]) -> None:
        self._supervisord = supervisord
        self._every_s = every_s
        self._started_s: dict[str, int] = {}
        if every_s:
            shortest_s = min(every_s.values())
            events.subscribe(max((e for e in events.TICK_EVENTS if e.period <= shortest_s), key=lambda e: e.period), self._tick)

    def _tick(self, event: Any) -> None:
        # Groups are stopped once each: a part started after its group has been stopped would never be, and a shutdown never end.
        if self._supervisord.options.mood < states.SupervisorStates.RUNNING:
            return
        for name, every_s in self._every_s.items():
            # A clock that was set back counts as well: it must not put the next start off for as long.
            if not 0 <= event.when - self._started_s.get(name, -every_s) < every_s:
                self._started_s[name] = event.when
                process = self._supervisord.process_groups[TIMED].processes[name]
                if process.get_state() in states.STOPPED_STATES:
                    process.spawn()


def make_restarts(supervisord: Any, **config: str) -> Restarts:
    """The factory that the supervisor's configuration names; each option is a timed part with its seconds."""
    every_s = {name: int(value) for name, value in config.items()}
    Timed(supervisord, every_s)
    return Restarts(every_s)


class Options(ServerOptions):  # type: ignore[misc]  # the library has no types
    """Options of a supervisor whose own parts are forks of it; other programs are executed as ever. All know its pid."""

    supervisor = 0

    def fork(self) -> int:
        """Forks; in the child, `supervisor` is its parent."""
        self.supervisor = os.getpid()
        return os.fork()

    def execve(self, filename: str, argv: list[str], env: dict[str, str]) -> None:
        """Replaces the child's program."""
        if forked_parts.role_command(argv) is None:
            super().execve(filename, tether.with_parent(argv, self.supervisor), env)
        else:
            forked_parts.become(argv, env, self.supervisor)


if __name__ == "__main__":
    supervisord.ServerOptions = Options
    supervisord.main()
