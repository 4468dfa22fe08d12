"""A topic partition in memory, as the archive sees it; the same contract suite runs against this and real Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.model.errors import RecordsGoneError


@dataclass
class MemoryPartition:
    """A topic partition in memory. Where `trim_under` is set, somebody trims up to there between a look at the bounds and the reading."""

    stored: list[LogRecord]
    low: int = 0
    markers: int = 0
    trim_under: int = 0
    deleted: list[int] = field(default_factory=list)

    def bounds(self) -> tuple[int, int]:
        return self.low, self.stored[-1].offset + 1 + self.markers if self.stored else self.low

    def records(self, start: int) -> Iterator[LogRecord]:
        self.low = max(self.low, self.trim_under)
        if start < self.low:
            raise RecordsGoneError(f"begins at {self.low}")
        yield from [r for r in self.stored if r.offset >= start]

    def delete_before(self, offset: int) -> int:
        self.deleted.append(offset)
        self.low = offset
        return offset
