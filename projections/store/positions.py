"""Positions of a lane in its topics, kept in ClickHouse beside the rows themselves.

Holds: an intent is written before a batch's rows and a done after them; a reader starts from the largest offset of a done batch
and first replays the one batch, if any, that has an intent but no done. The done of a batch may travel with the next intent: the
two are one block, so both are there or neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trainhouse.projections.store.clickhouse import ClickHouse


@dataclass(frozen=True, order=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A numbered set of ranges whose rows go in together. `number` grows by one within a lane."""

    lane: str
    number: int
    ranges: tuple[Range, ...]

    def token(self, part: str) -> str:
        """Names the insert of one part (a table) of the batch for ever."""
        ends = ",".join(f"{r.topic}-{r.partition}-{r.start}-{r.end}" for r in sorted(self.ranges))
        return f"{self.lane}:{self.number}:{part}:{ends}"


@dataclass(frozen=True)
class LaneState:
    """Stored state of a lane: positions to read from, the batch to replay, and the number of the next one."""

    next_offsets: dict[tuple[str, int], int]
    pending: Batch | None
    next_number: int

    @property
    def needed_from(self) -> dict[tuple[str, int], int]:
        """The first offset of each partition that will be read: the batch that was cut is replayed."""
        cut = self.pending.ranges if self.pending is not None else ()
        return self.next_offsets | {(r.topic, r.partition): r.start for r in cut}


class Positions:
    """The positions of one lane. Every call blocks on ClickHouse."""

    def __init__(self, clickhouse: ClickHouse, lane: str) -> None:
        self._clickhouse = clickhouse
        self._lane = lane
        self._undone: Batch | None = None

    def load(self) -> LaneState:
        """Reads where the lane stands."""
        rows = self._clickhouse.rows(_LOAD, {"lane": self._lane})
        offsets: dict[tuple[str, int], int] = {}
        newest = max((int(r[2]) for r in rows), default=0)
        pending = []
        for topic, partition, number, start, end, done in rows:
            offsets[(topic, int(partition))] = int(end)
            if number == newest and not done:
                pending.append(Range(topic, int(partition), int(start), int(end)))
        batch = Batch(self._lane, newest, tuple(sorted(pending))) if pending else None
        return LaneState(offsets, batch, newest + 1)

    def begin(self, batch: Batch) -> None:
        """Writes the intent of a batch, and with it the done of the one before."""
        rows = [*self._rows(self._undone, 1), *self._rows(batch, 0)]
        self._clickhouse.insert("positions", _table(rows), batch.token("intent"))
        self._undone = None

    def complete(self, batch: Batch) -> None:
        """All rows of the batch are in; its done is written with the next intent, or by `settle`."""
        self._undone = batch

    def settle(self) -> None:
        """Writes a done that is due."""
        if self._undone is not None:
            self._clickhouse.insert("positions", _table(self._rows(self._undone, 1)), self._undone.token("done"))
            self._undone = None

    def _rows(self, batch: Batch | None, done: int) -> list[tuple[str, str, int, int, int, int, int, int]]:
        if batch is None:
            return []
        return [(self._lane, r.topic, r.partition, batch.number, r.start, r.end, done, 2 * batch.number + done) for r in batch.ranges]


_LOAD = """
SELECT topic, partition, batch, from_offset, to_offset, done FROM positions FINAL WHERE lane = {lane:String} ORDER BY topic, partition
"""
_SCHEMA = pa.schema(
    [
        ("lane", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.uint32()),
        ("batch", pa.uint64()),
        ("from_offset", pa.uint64()),
        ("to_offset", pa.uint64()),
        ("done", pa.uint8()),
        ("version", pa.uint64()),
    ]
)


def _table(rows: Sequence[tuple[str, str, int, int, int, int, int, int]]) -> pa.Table:
    columns: Iterable[tuple[object, ...]] = zip(*rows, strict=True)
    return pa.Table.from_arrays([pa.array(c, type=f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
