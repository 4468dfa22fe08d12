"""Data feed of `top`, in threads of its own: the list once, then each new status; machines, pools and alerts now and then.

Holds: the picture is changed under a lock; servers that are away are told in one sentence and asked again, and then all is read anew.
Never: touches the screen.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainhouse.cli.top.picture import MAX_JOBS, Picture
from trainhouse.client import ClientError, TrainhouseClient

SLOW_EVERY_S = 2.0
AGAIN_S = 2.0
RELIST_EVERY_S = 60.0


@dataclass
class Feed:
    """One reader of everything. `start` begins, `stop` ends; `picture` may be read under `lock`."""

    client: TrainhouseClient
    picture: Picture = field(default_factory=Picture)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _dirty: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begins to read. Does not block."""
        for name, work in (("statuses", self._statuses), ("fleet", self._fleet)):
            threading.Thread(target=self._guarded, args=(work,), name=f"top-{name}", daemon=True).start()

    def stop(self) -> None:
        """Asks the threads to end; they are daemons, so nobody waits for them."""
        self._stopped.set()

    def changed(self) -> bool:
        """Returns whether anything came since the last call."""
        found = self._dirty.is_set()
        self._dirty.clear()
        return found

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                work()
            except (ClientError, OSError) as error:
                self._report(str(error))
                self._stopped.wait(AGAIN_S)

    def _statuses(self) -> None:
        """Follows statuses; what came between the list and the following is in neither, so the list is read after the first wait."""
        due = 0.0
        for status in self.client.watch_all():
            if self._stopped.is_set():
                return
            if time.monotonic() >= due:
                rows = self.client.jobs(limit=MAX_JOBS)
                with self.lock:
                    self.picture.listed(rows)
                due = time.monotonic() + RELIST_EVERY_S
                self._report("")
            if status is not None:
                with self.lock:
                    self.picture.on_status(status)
                self._report("")

    def _fleet(self) -> None:
        way = self.client.way
        nodes, pools, alerts = way.nodes(), way.pools(), way.alerts()
        with self.lock:
            self.picture.nodes, self.picture.pools, self.picture.alerts = nodes, pools, alerts
        self._report("")
        self._stopped.wait(SLOW_EVERY_S)

    def _report(self, problem: str) -> None:
        with self.lock:
            self.picture.problem = problem
            if not problem:
                self.picture.at_ms = time.time_ns() // 1_000_000
        self._dirty.set()
