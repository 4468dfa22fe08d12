"""Values of secrets that attempts on this node got, in memory: what their programs wrote is covered also after the files are gone.

Holds: a value is here before a rank can read it. An attempt's are forgotten once all that it wrote is shipped.
"""

import threading
from collections.abc import Iterable

from trainhouse.workers.agent.core import AttemptKey


class HandedValues:
    """By attempt; of those alone that were begun. Safe to use from several threads."""

    def __init__(self) -> None:
        self._values: dict[AttemptKey, dict[str, None] | None] = {}
        self._lock = threading.Lock()

    def begin(self, key: AttemptKey) -> None:
        """Keeps what this attempt gets from now on."""
        with self._lock:
            self._values.setdefault(key, None)

    def add(self, key: AttemptKey, values: Iterable[str]) -> None:
        added = dict.fromkeys(values)
        with self._lock:
            if added and key in self._values:
                self._values[key] = (self._values[key] or {}) | added

    def of(self, key: AttemptKey) -> tuple[str, ...] | None:
        """All that the attempt ever got, the oldest first; None where nothing is known of it."""
        with self._lock:
            found = self._values.get(key)
            return None if found is None else tuple(found)

    def forget(self, key: AttemptKey) -> None:
        with self._lock:
            self._values.pop(key, None)
