"""Input and output of a projection: records and rows. Pure values.

Holds: a rows function is a pure function of (envelope, record); the same record always gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import Envelope

# Times that ClickHouse's seconds can hold, with room for a TTL; ranks' clocks may say anything.
MAX_TIME_MS = 4_000_000_000_000
_OFFSETS = 2**56
# Where an event is at home; copies of it on other topics give way.
_HOME = {topics.JOBS: 3, topics.CHECKPOINTS: 2, topics.VERDICTS: 2, topics.ALLOCATIONS: 2, topics.STATUS: 2, topics.CONTROL: 1}


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record. `timestamp_ms` is the broker's or the producer's, 0 where there is none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One row of one table, by column name; times are milliseconds since 1970. Source columns are added by ingestion."""

    table: str
    values: dict[str, Any]


RowsFunction = Callable[[Envelope, Record], Iterable[Row]]


def clamp_ms(time_ms: int | None) -> int:
    """A time that every column can hold; None is 0."""
    return 0 if time_ms is None else max(0, min(int(time_ms), MAX_TIME_MS))


def optional_ms(time_ms: int | None) -> int | None:
    """As clamp_ms, but None stays None."""
    return None if time_ms is None else clamp_ms(time_ms)


def event_ms(envelope: Envelope, record: Record) -> int:
    """Returns the time of the event: its own, else its record's."""
    return clamp_ms(envelope.time_ms if envelope.time_ms is not None else record.timestamp_ms)


def copy_version(record: Record) -> int:
    """Ranks the copies of a repeated event: the one on its home topic stays, and there the first. Larger wins."""
    return (_HOME.get(record.topic, 0) + 1) * _OFFSETS - record.offset
