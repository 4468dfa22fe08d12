"""Segments beside snapshots: each object is stored once, by whichever owner first takes a snapshot that names it.

Holds: when `store` returns, every segment is in the store under the name of its content. What another process stored is read once, a few
at a time, and what is damaged there is stored again.
"""

import hashlib
from collections.abc import Sequence
from typing import Generic, TypeVar

from trainhouse.scheduler.core.protocol.machine import Machine, Segmented
from trainhouse.scheduler.core.protocol.settled import Sealing, Segment
from trainhouse.scheduler.core.protocol.snapshot_choice import segment_key, segments_folder
from trainhouse.scheduler.stream.interfaces import SnapshotStore

S = TypeVar("S")
READ_AT_ONCE = 4


class SnapshotSegments(Generic[S]):
    """The segments of one journal's states. All but `of` blocks."""

    def __init__(self, store: SnapshotStore, journal: str, machine: Machine[S]) -> None:
        self._store = store
        self._journal = journal
        self._machine = machine
        self._whole: dict[int, set[str]] = {}

    def of(self, state: S) -> Sequence[Sealing]:
        """The segments that a state names."""
        return self._machine.segments(state) if isinstance(self._machine, Segmented) else ()

    def store(self, partition: int, topic_id: str, segments: Sequence[Sealing]) -> tuple[str, ...]:
        """Stores those that are not stored; the names of all. Raises StateLost, and what the store raises."""
        if not segments or not isinstance(self._machine, Segmented):
            return ()
        present = set(self._store.keys(segments_folder(self._journal, partition)))
        named = {segment_key(self._journal, partition, topic_id, s): s for s in (part.segment() for part in segments)}
        whole = self._whole.setdefault(partition, set())
        whole &= named.keys() & present
        unread = [key for key in named if key in present and key not in whole][:READ_AT_ONCE]
        damaged = {key for key in unread if not self._is_whole(key, named[key])}
        for key in [key for key in named if key not in present or key in damaged]:
            self._store.put(key, self._machine.content(partition, named[key]))
            whole.add(key)
        whole.update(unread)
        return tuple(named)

    def _is_whole(self, key: str, segment: Segment) -> bool:
        content = self._store.get(key)
        return content is not None and hashlib.sha256(content).hexdigest() == segment.sha256
