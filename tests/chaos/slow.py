"""A process that is slow without being dead: it runs for a short while and is stopped for a longer one, again and again.

What it stands for: a disk (or a machine) that is an order slower than usual, as all who ask the process see it. It is not a throttled
device: the process's own disk is as fast as ever, and its timeouts run on while it is stopped.
"""

from __future__ import annotations

import os
import signal
import threading


class Slowed:
    """From its making until `end`. Harmless when the process ends meanwhile."""

    def __init__(self, pid: int, runs_s: float = 0.02, stops_s: float = 0.18) -> None:
        self._pid = pid
        self._runs_s, self._stops_s = runs_s, stops_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slow-{pid}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """It runs as before; blocks until it does."""
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                os.kill(self._pid, signal.SIGSTOP)
                self._over.wait(self._stops_s)
                os.kill(self._pid, signal.SIGCONT)
                self._over.wait(self._runs_s)
        except ProcessLookupError:
            return
