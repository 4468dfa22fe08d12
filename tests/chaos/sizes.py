"""How much the parts of a stack take while a campaign runs: memory of each process, bytes of the journals.

Holds: looks from outside, at the machine's processes and the brokers' files.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.stack import ChaosStack
from trainhouse.deploy.local.errors import StackError
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.stack_state import ps
from trainhouse.events.wire import topics

EVERY_S = 3.0
DAY_S = 86_400
JOURNALS = (topics.DECISIONS, topics.DIRECTORY)


def journal_bytes(data_dir: Path) -> int:
    """What the journals' segments take on the brokers' disk."""
    data = StackFolder(data_dir).part("kafka") / "data"
    return sum(file.stat().st_size for topic in JOURNALS for file in data.glob(f"{topic}-*/*.log"))


class Sizes:
    """From its making until `end`. `peaks`: the most that each part had in memory, bytes."""

    def __init__(self, stack: ChaosStack) -> None:
        self._stack = stack
        self.peaks: Counter[str] = Counter()
        self._began_s, self._began_bytes = time.monotonic(), journal_bytes(stack.live.data_dir)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sizes", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Looks no more; blocks for a moment."""
        self._over.set()
        self._thread.join(30)

    def journal_bytes_a_day(self) -> float:
        """At the pace since the beginning."""
        grown = journal_bytes(self._stack.live.data_dir) - self._began_bytes
        return grown * DAY_S / (time.monotonic() - self._began_s)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            with suppress(StackError, OSError):  # the supervisor may be busy
                rows = {row.name: row.pid for row in ps(self._stack.live.data_dir)}
                for name, pid in (rows | {name: kept.pid or 0 for name, kept in self._stack.kept.items()}).items():
                    self._look(name, pid)

    def _look(self, name: str, pid: int) -> None:
        with suppress(psutil.Error):
            if pid > 0:
                self.peaks[name] = max(self.peaks[name], psutil.Process(pid).memory_info().rss)
