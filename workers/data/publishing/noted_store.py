"""Object store as a publication sees it: a note, renewed while the publication runs, keeps a sweep from what it relies on.

Holds: the note is there before the first look at an object, and until the block ends; one of a process that was killed counts for
the sweep's grace. Objects that a sweep may have been about to remove are looked at again by `check`.
"""

import time
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from trainhouse.checkpointing.chain.chunks import GRACE_S
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStat, ObjectStore
from trainhouse.events.model.dataset_keys import publishing_key
from trainhouse.workers.data.errors import InvalidDataError

RENEW_S: Final = 600.0


class NotedStore:
    """Of one publication. A context manager; all methods block, and raise what the store raises."""

    def __init__(self, objects: ObjectStore, project: str) -> None:
        self._objects = objects
        self._key = publishing_key(project, uuid.uuid4().hex)
        self._renewed_s = 0.0
        self._old: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._renewed_s:
            # A note that stays, as the store is away, counts for a day.
            with suppress(CheckpointError):
                self._objects.delete(self._key)

    def stat(self, key: str) -> ObjectStat | None:
        """Size and age, or None if there is no such object."""
        self._renew()
        found = self._objects.stat(key)
        if found is not None and found.age_s > GRACE_S:
            self._old.add(key)
        return found

    def put(self, key: str, body: Body) -> None:
        """Writes or overwrites."""
        self._renew()
        self._objects.put(key, body)
        self._old.discard(key)

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        """Part of an object."""
        return self._objects.get_range(key, start, length_bytes)

    def check(self) -> None:
        """Raises InvalidDataError where an object that was there, and old, is gone: a sweep had begun to remove it before the note was
        there."""
        gone = next((key for key in sorted(self._old) if self._objects.stat(key) is None), None)
        if gone is not None:
            raise InvalidDataError(f"{self._objects.uri(gone)} was removed by a sweep meanwhile; publish again")

    def _renew(self) -> None:
        if not self._renewed_s or time.monotonic() > self._renewed_s + RENEW_S:
            self._objects.put(self._key, b"")
            self._renewed_s = time.monotonic()
