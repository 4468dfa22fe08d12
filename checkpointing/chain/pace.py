"""Pace of an upload: beside training, with few requests at a time; or with all that there are, while training waits for it.

Holds: an upload that is hurried once stays hurried to its end.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

BACKGROUND_THREADS: Final = 4
FULL_THREADS: Final = 8
"""Requests at a time. As many as the connections that a process keeps to the object store (TRAINHOUSE_S3_CONNECTIONS) by default."""


class Pace:
    """Pace of one upload. Safe between threads."""

    def __init__(self, *, full: bool = False) -> None:
        self._lock = threading.Lock()
        self._full = full
        self._watchers: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        """Whether nothing goes before it."""
        return self._full

    def hurry(self) -> None:
        """From now on all that there is. Calls those who watch it, in this thread, the first time; they must not ask for the pace."""
        with self._lock:
            if not self._full:
                self._full = True
                for watcher in self._watchers:
                    with suppress(RuntimeError):  # no thread can be started, as under a limit of processes: it goes on as it is
                        watcher()

    @contextmanager
    def watched(self, hurried: Callable[[], None]) -> Iterator[bool]:
        """Gives whether it is full; where it is not, `hurried` is called if it becomes so meanwhile, perhaps in another thread."""
        with self._lock:
            full = self._full
            self._watchers.append(hurried)
        try:
            yield full
        finally:
            with self._lock:
                self._watchers.remove(hurried)
