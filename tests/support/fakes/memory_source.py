"""A log in memory that acts as a lane's source: the fake of the Kafka source, held to the same contract suite.

Holds: offsets are per topic and partition and may have gaps (`skip`), as after transactions or compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainhouse.projections.errors import InvalidPositionError
from trainhouse.projections.record import Record
from trainhouse.projections.store.positions import Range


class MemoryLog:
    """The records of some partitions."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ends: dict[tuple[str, int], int] = {}

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> Record:
        """One more record; returns it."""
        offset = self.ends.get((topic, partition), 0)
        self.ends[(topic, partition)] = offset + 1
        record = Record(topic, partition, offset, timestamp_ms, key, value, headers)
        self.records.append(record)
        return record

    def skip(self, topic: str, partition: int = 0) -> None:
        """An offset that no reader sees, as a commit marker is."""
        self.ends[(topic, partition)] = self.ends.get((topic, partition), 0) + 1


class MemorySource:
    """Reads a MemoryLog; at most `max_records` a poll."""

    def __init__(self, log: MemoryLog, max_records: int = 100) -> None:
        self._log = log
        self._max_records = max_records
        self._next: dict[tuple[str, int], int] = {}

    def start(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        for (topic, partition), offset in next_offsets.items():
            if offset > self._log.ends.get((topic, partition), 0):
                raise InvalidPositionError(f"{topic}-{partition} ends before {offset}")
        self._next = dict(next_offsets)

    def poll(self, linger_s: float) -> list[Record]:
        found = [r for r in self._log.records if r.offset >= self._next.get((r.topic, r.partition), 0)][: self._max_records]
        for record in found:
            self._next[(record.topic, record.partition)] = record.offset + 1
        return found

    def read(self, ranges: Iterable[Range]) -> list[Record]:
        return [
            record
            for r in sorted(ranges)
            for record in self._log.records
            if (record.topic, record.partition) == (r.topic, r.partition) and r.start <= record.offset < r.end
        ]

    def close(self) -> None:
        self._next = {}


class MemoryHistory(MemorySource):
    """Reads a MemoryLog up to given ends, and is finished then."""

    def __init__(self, log: MemoryLog, ends: Mapping[tuple[str, int], int], max_records: int = 100) -> None:
        super().__init__(log, max_records)
        self._ends = ends

    def poll(self, linger_s: float) -> list[Record]:
        found = super().poll(linger_s)
        while found and not (within := self._within(found)):
            found = super().poll(linger_s)
        return within if found else []

    @property
    def finished(self) -> bool:
        return not any(r.offset >= self._next.get((r.topic, r.partition), 0) for r in self._within(self._log.records))

    def _within(self, records: list[Record]) -> list[Record]:
        return [r for r in records if r.offset < self._ends.get((r.topic, r.partition), 0)]
