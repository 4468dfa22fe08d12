"""Tables that are new to a lane read its history by themselves, while the lane and all other tables go on.

A lane that stands somewhere already gives a new table only what comes from there on. What lies before is read once more by a lane of its
own that keeps the rows of the new tables alone, up to exactly where the other one began to give them theirs.
Holds: which tables of a lane have all of its history, and how far a catch-up is to read, is in the database (lane_tables, catch_ups) before
anything is inserted; so a start after any crash goes on. A catch-up is a lane: its batches are as exact as any.
Never: inserts into a table that has its history.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event

import pyarrow as pa
import structlog

from trainhouse.projections.ingest.builders.row_batch import Builder, Built
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.topic_history import History, Place
from trainhouse.projections.record import Record
from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import LaneState, Positions

MAX_REST_S = 1.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CatchUp:
    """Missing history: tables of a lane, and the offsets up to which they lack it. `name` is that of its own lane."""

    lane: str
    name: str
    tables: frozenset[str]
    ends: dict[Place, int]


class OnlyTables:
    """A builder's rows of some tables; of dead letters only where they are among them."""

    def __init__(self, builder: Builder, tables: Iterable[str]) -> None:
        self._builder = builder
        self._tables = frozenset(tables)

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        return self._builder.ready(records, stop)

    def streams(self, records: Sequence[Record]) -> list[str]:
        return self._builder.streams(records)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        built = self._builder.build(records, marks)
        return Built({name: rows for name, rows in built.tables.items() if name in self._tables}, built.marks)


def plan(clickhouse: ClickHouse, lane: str, tables: Iterable[str]) -> list[CatchUp]:
    """Returns the catch-ups after which all `tables` of a lane have its history. Before the lane starts. Blocks; safe to interrupt."""
    whole = whole_tables(clickhouse, lane)
    standing = Positions(clickhouse, lane).load()
    if not standing.next_offsets:
        note_whole(clickhouse, lane, set(tables) - whole)
        return []
    begun = _begun(clickhouse, lane)
    open_ones = [c for c in begun if not c.tables <= whole]
    missing = set(tables) - whole - {t for c in open_ones for t in c.tables}
    if missing:
        open_ones.append(_begin(clickhouse, CatchUp(lane, f"{lane}+{len(begun) + 1}", frozenset(missing), _before(standing))))
    return open_ones


def whole_tables(clickhouse: ClickHouse, lane: str) -> set[str]:
    """The tables that have all of the lane's history. Blocks."""
    return {str(t) for (t,) in clickhouse.rows(_WHOLE, {"lane": lane})}


def note_whole(clickhouse: ClickHouse, lane: str, tables: Iterable[str]) -> None:
    """From now on these tables have all of the lane's history. Blocks."""
    names = sorted(tables)
    if names:
        columns = [pa.array([lane] * len(names)), pa.array(names)]
        clickhouse.insert("lane_tables", pa.Table.from_arrays(columns, names=["lane", "table_name"]), f"{lane}:whole:{_digest(names)}")


class CatchUpLane:
    """Runs one catch-up to its end. Leaves half of the time to those that serve."""

    def __init__(self, catch_up: CatchUp, source: History, clickhouse: ClickHouse, builder: Builder) -> None:
        self.name = catch_up.name
        self._catch_up = catch_up
        self._source = source
        self._clickhouse = clickhouse
        self._lane = Lane(catch_up.name, source, clickhouse, OnlyTables(builder, catch_up.tables), Pace(0, 0))

    def recover(self) -> None:
        """Finishes the batch that a crash cut, if any. Before any lane ingests. Blocks."""
        self._lane.recover()

    def run(self, stop: Event) -> None:
        """After `recover`: blocks until it is done or `stop` is set. Raises what it cannot get past; a restart goes on from there."""
        log.info("tables catch up on history", lane=self.name, tables=sorted(self._catch_up.tables))
        while not stop.is_set():
            began_s = time.monotonic()
            records = self._source.poll(0)
            if records and not self._lane.ready(records, stop):
                break
            if records:
                self._lane.ingest(records)
            elif self._source.finished:
                self._lane.settle()
                note_whole(self._clickhouse, self._catch_up.lane, self._catch_up.tables)
                log.info("tables have caught up", lane=self.name, records=self._lane.records)
                return
            stop.wait(min(MAX_REST_S, time.monotonic() - began_s))
        self._lane.settle()

    def close(self) -> None:
        """Leaves the source and the connection."""
        self._lane.close()


def _before(standing: LaneState) -> dict[Place, int]:
    """Up to where the lane has given rows; a batch that was cut will give the new tables theirs when it is replayed."""
    return {place: end for place, end in standing.needed_from.items() if end > 0}


def _begin(clickhouse: ClickHouse, made: CatchUp) -> CatchUp:
    """Writes a catch-up down, in one block: all of it is there or nothing."""
    places = sorted(made.ends) or [("", 0)]
    columns = [
        pa.array([made.lane] * len(places)),
        pa.array([made.name] * len(places)),
        pa.array([sorted(made.tables)] * len(places), type=pa.list_(pa.string())),
        pa.array([topic for topic, _ in places]),
        pa.array([partition for _, partition in places], type=pa.uint32()),
        pa.array([made.ends.get(place, 0) for place in places], type=pa.uint64()),
    ]
    names = ["lane", "name", "table_names", "topic", "partition", "end_offset"]
    clickhouse.insert("catch_ups", pa.Table.from_arrays(columns, names=names), f"{made.name}:{_digest(sorted(made.tables))}")
    return made


def _begun(clickhouse: ClickHouse, lane: str) -> list[CatchUp]:
    found: dict[str, CatchUp] = {}
    for name, tables, topic, partition, end in clickhouse.rows(_BEGUN, {"lane": lane}):
        one = found.setdefault(str(name), CatchUp(lane, str(name), frozenset(tables), {}))
        if topic:
            one.ends[(str(topic), int(partition))] = int(end)
    return list(found.values())


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256(",".join(names).encode()).hexdigest()[:16]


_WHOLE = "SELECT table_name FROM lane_tables FINAL WHERE lane = {lane:String}"
_BEGUN = """
SELECT name, table_names, topic, partition, end_offset FROM catch_ups FINAL WHERE lane = {lane:String} ORDER BY name, topic, partition
"""
