"""Liveness of a rank: a small thread that writes a sign once a second, also while the program is stuck in a collective, a loader or a save.

Holds: it starts after the fork that made the rank, and dies with the process, whatever state that is in. A stopped process has no pulse.
Never: touches a tensor or a device (a device that hangs must not take the pulse with it), keeps the process alive, or raises.
"""

import sys
import time
from collections.abc import Callable

from trainhouse.workers.session.process.background import STOP_TIMEOUT_S, Beside
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.spool import SpoolError

EVERY_S = 1.0


class Pulse:
    """Heartbeat thread of a session: reports `progress` at once and then every `every_s`; then calls `look` with the time."""

    def __init__(self, progress: Progress, every_s: float = EVERY_S) -> None:
        self.progress = progress
        self._every_s = every_s
        self.look: Callable[[float], None] = lambda now: None
        self._beside = Beside("trainhouse-pulse", self._run)
        self._complained_ms: int | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._beside.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Stops the thread; True once it has ended. Blocks for as long as one beat takes, at most `timeout_s`."""
        return self._beside.stop(timeout_s)

    def _run(self) -> None:
        while True:
            now_ms = time.time_ns() // 1_000_000
            try:
                self.progress.report(time.monotonic(), now_ms)
                self.look(time.monotonic())
            except SpoolError:
                pass  # the program's own next line tells it, where somebody sees it
            self._complain(now_ms)
            if self._beside.ended_in(self._every_s):
                return

    def _complain(self, now_ms: int) -> None:
        """Warns, once, of an announced phase that exceeds its limit."""
        doing = self.progress.activity.now
        if doing.limit_s is None or doing.since_ms == self._complained_ms or now_ms - doing.since_ms <= doing.limit_s * 1000:
            return
        self._complained_ms = doing.since_ms
        print(f"{doing.name!r} was announced to take at most {doing.limit_s:g} s, and goes on", file=sys.stderr, flush=True)
