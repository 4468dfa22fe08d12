"""Lane of ingestion: reads a batch, writes its intent, inserts its rows, stores its marks.

Holds: after any crash at any point the tables hold each record's rows once: the batch with an intent but no done is replayed with
the same bounds, the same marks and the same tokens; then appended tables are counted, and what does not add up is made anew.

A journal that decides nothing says so several times a second, and three inserts for each would cost more than all else of an idle stack. So
records that make no row may be kept back, in memory alone, and go in with the next that make one, or after `quiet_s`: a crash meanwhile has
them read again. For the same reason the done of a batch may wait `done_s` for the next intent, which it is one insert with: a crash
meanwhile has the batch replayed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

import pyarrow as pa
import structlog

from trainhouse.projections.ingest.builders.row_batch import Builder, Built
from trainhouse.projections.ingest.high_water import Marks
from trainhouse.projections.ingest.reader import Source
from trainhouse.projections.process_metrics import LaneMeters
from trainhouse.projections.record import Record
from trainhouse.projections.store import rollups
from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import Batch, Positions, Range
from trainhouse.projections.store.replay_repair import make_whole
from trainhouse.projections.store.tables import APPENDED

MAX_KEPT_RECORDS = 100
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Pace:
    """Gathering time of a batch. A slow insert makes the next batch gather longer, so that parts stay few under load."""

    linger_s: float
    max_linger_s: float

    def after(self, cycle_s: float) -> float:
        """Returns the gathering time after a cycle that took `cycle_s`."""
        return min(self.max_linger_s, max(self.linger_s, 2 * cycle_s))


class Lane:
    """Owns its source and its ClickHouse connection; `run` blocks until `stop` is set."""

    def __init__(
        self,
        name: str,
        source: Source,
        clickhouse: ClickHouse,
        builder: Builder,
        pace: Pace,
        meters: LaneMeters | None = None,
        quiet_s: float = 0.0,
        done_s: float = 0.0,
    ) -> None:
        self.name = name
        self.records = 0
        self._source = source
        self._clickhouse = clickhouse
        self._builder = builder
        self._pace = pace
        self._meters = meters or LaneMeters()
        self._positions = Positions(clickhouse, name)
        self._marks = Marks(clickhouse, name)
        self._next: dict[tuple[str, int], int] = {}
        self._number = 1
        self._quiet_s = quiet_s
        self._done_s = done_s
        self._written_s = 0.0
        self._kept: list[Record] = []
        self._kept_marks: dict[str, int] = {}
        self._kept_since_s = 0.0

    def run(self, stop: Event) -> None:
        """After `recover`: ingests for ever. Raises what it cannot get past; a restart goes on from there."""
        linger_s = self._pace.linger_s
        while not stop.is_set():
            records = self._source.poll(linger_s)
            began = time.monotonic()
            if self._keep_back(records, began):
                if began - self._written_s >= self._done_s:
                    self._positions.settle()
                continue
            records = self._with_kept(records)
            if not self.ready(records, stop):
                break
            self.ingest(records)
            self._written_s = time.monotonic()
            took_s = self._written_s - began
            self._meters.ingested(self.name, records, took_s)
            linger_s = self._pace.after(took_s)
        if self._kept:
            self.ingest(self._with_kept([]))
        self._positions.settle()

    def recover(self) -> None:
        """Finishes the batch that a crash cut, if any, and moves the source to the stored positions. Blocks.

        No other lane may insert into the same tables meanwhile (lane_threads.py sees to that).
        """
        standing = self._positions.load()
        if standing.pending is not None:
            records = self._source.read(standing.pending.ranges)
            log.info("replaying a batch that was cut", lane=self.name, batch=standing.pending.number, records=len(records))
            self._write(standing.pending, records, replay=True)
            self._positions.settle()
        self._next = dict(standing.next_offsets)
        self._number = standing.next_number
        self._source.start(self._next)

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Waits until the batch can be built; False where `stop` was set before, and then it is read again after a restart. Blocks."""
        return self._builder.ready(records, stop)

    def ingest(self, records: Sequence[Record]) -> None:
        """Writes one batch."""
        batch = Batch(self.name, self._number, self._ranges(records))
        self._positions.begin(batch)
        self._write(batch, records, replay=False)
        self._number += 1
        for r in batch.ranges:
            self._next[(r.topic, r.partition)] = r.end
        self.records += len(records)

    def settle(self) -> None:
        """Writes the done of the newest batch, if it is due."""
        self._positions.settle()

    @property
    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Next offset by topic and partition; partitions that were never read are not in it."""
        return self._next | {(r.topic, r.partition): r.offset + 1 for r in list(self._kept)}

    def close(self) -> None:
        """Leaves the source and the connection."""
        self._source.close()
        self._clickhouse.close()

    def _keep_back(self, records: Sequence[Record], now_s: float) -> bool:
        """Returns whether nothing is to be written: nothing came, or only what makes no row, and what is kept is neither old nor much."""
        if self._kept and now_s - self._kept_since_s >= self._quiet_s:
            return False
        if not records:
            return True
        if not self._quiet_s or len(self._kept) + len(records) > MAX_KEPT_RECORDS:
            return False
        before = self._marks.for_batch(self._builder.streams(records), self._number)
        built = self._builder.build(records, {stream: self._kept_marks.get(stream, mark) for stream, mark in before.items()})
        if built.tables or built.gaps:
            return False
        if not self._kept:
            self._kept_since_s = now_s
        self._kept = [*self._kept, *records]
        self._kept_marks |= built.marks
        return True

    def _with_kept(self, records: Sequence[Record]) -> list[Record]:
        """Returns the records kept back and those that came after them; nothing is kept any more."""
        kept, self._kept, self._kept_marks = self._kept, [], {}
        return [*kept, *records] if kept else list(records)

    def _write(self, batch: Batch, records: Sequence[Record], replay: bool) -> None:
        before = self._marks.for_batch(self._builder.streams(records), batch.number)
        built = self._builder.build(records, before)
        if built.unreadable:
            log.warning("records became dead letters", lane=self.name, count=built.unreadable)
        for gap in built.gaps:
            log.error("a journal has a gap; the tables go on behind it", lane=self.name, gap=gap)
        for table, rows in built.tables.items():
            self._clickhouse.insert(table, rows, batch.token(table))
        self._meters.wrote(self.name, built.tables, built.unreadable)
        if replay:
            self._count(batch, built)
        self._marks.store(batch, before, built.marks)
        self._positions.complete(batch)

    def _count(self, batch: Batch, built: Built) -> None:
        for table in sorted(APPENDED & built.tables.keys()):
            rows: pa.Table = built.tables[table]
            if make_whole(self._clickhouse, table, rows, batch):
                log.warning("a batch was incomplete after its replay and was made anew", lane=self.name, table=table)
        if rollups.POINTS in built.tables:
            rollups.make_anew(self._clickhouse, built.tables[rollups.POINTS])

    def _ranges(self, records: Sequence[Record]) -> tuple[Range, ...]:
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            ends[(record.topic, record.partition)] = record.offset + 1
        return tuple(sorted(Range(t, p, self._next.get((t, p), 0), end) for (t, p), end in ends.items()))
