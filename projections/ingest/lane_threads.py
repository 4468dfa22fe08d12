"""The threads of lanes and of their catch-ups: first all of them finish what a crash cut, one by one, and only then any of them goes on.

Why: a replay makes rollups anew from the points of whole hours (rollups.py). A lane that inserts points of such an hour meanwhile would
have them counted by the replay and once more by itself.
Holds: nothing new is ingested before the last replay is over. The first failure stops all; who was added is closed in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Runnable(Protocol):
    """A lane, or a catch-up of one."""

    @property
    def name(self) -> str:
        """Its name in logs and positions."""

    def recover(self) -> None:
        """Finishes the batch that a crash cut, if any. Blocks."""

    def run(self, stop: threading.Event) -> None:
        """Goes on from there until it is done or `stop` is set. Blocks."""

    def close(self) -> None:
        """Leaves what it holds."""


class LaneThreads:
    """`add` all, `start` once, `join` at the end; `failures` says by name who could not go on."""

    def __init__(self, stop: threading.Event) -> None:
        self.failures: dict[str, BaseException] = {}
        self._stop = stop
        self._waiting: list[Runnable] = []
        self._threads: list[threading.Thread] = []

    def add(self, lane: Runnable) -> None:
        """It is run by the next `start`, and closed by its end or by `join`."""
        self._waiting.append(lane)

    def start(self) -> None:
        """Recovers all, then runs each in its thread; none of them after a failure or a stop. Blocks while batches are replayed."""
        for lane in self._waiting:
            if self._stop.is_set():
                return
            self._guard(lane.name, lane.recover)
        while self._waiting and not self._stop.is_set():
            lane = self._waiting.pop(0)
            thread = threading.Thread(target=self._run, args=(lane,), name=f"lane-{lane.name}")
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        """Stops all. Blocks until their batches at hand are in."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        while self._waiting:
            self._waiting.pop().close()

    def _run(self, lane: Runnable) -> None:
        try:
            self._guard(lane.name, lambda: lane.run(self._stop))
        finally:
            lane.close()

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failures[name] = error
            self._stop.set()
