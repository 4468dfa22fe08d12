"""Segments beside snapshots: each object is stored once, by whichever owner first takes a snapshot that names it.

Holds: when `store` returns, every segment is in the store under the name of its content. Never: replaces one.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from trainhouse.scheduler.core.machine import Machine, Segmented
from trainhouse.scheduler.core.settled import Sealing
from trainhouse.scheduler.core.snapshot_choice import segment_key, segments_folder
from trainhouse.scheduler.stream.ports import SnapshotStore

S = TypeVar("S")


class SnapshotSegments(Generic[S]):
    """The segments of one journal's states. All but `of` blocks."""

    def __init__(self, store: SnapshotStore, journal: str, machine: Machine[S]) -> None:
        self._store = store
        self._journal = journal
        self._machine = machine

    def of(self, state: S) -> Sequence[Sealing]:
        """The segments that a state names."""
        return self._machine.segments(state) if isinstance(self._machine, Segmented) else ()

    def store(self, partition: int, topic_id: str, segments: Sequence[Sealing]) -> tuple[str, ...]:
        """Stores those that are not stored; the names of all. Raises StateLost, and what the store raises."""
        if not segments or not isinstance(self._machine, Segmented):
            return ()
        present = set(self._store.keys(segments_folder(self._journal, partition)))
        named = list[str]()
        for segment in (part.segment() for part in segments):
            key = segment_key(self._journal, partition, topic_id, segment)
            if key not in present:
                self._store.put(key, self._machine.content(partition, segment))
            named.append(key)
        return tuple(named)
