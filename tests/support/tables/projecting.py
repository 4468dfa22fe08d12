"""Lanes over the real embedded engine and a log in memory, for tests: whole lives of a lane, and lives that are cut.

Holds: what is killed is killed at a real insert; an insert that is cut inside leaves the blocks that the engine took before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support import spooled
from tests.support.fakes.memory_source import MemoryLog, MemorySource
from tests.support.tables.migrated import connect_migrated
from tests.support.tables.senders import senders_of
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.model.decisions import CheckpointNoted
from trainhouse.events.model.job import LastCheckpoint
from trainhouse.events.model.telemetry import LogLines, StepMetrics
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import decode, encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.journal import JournaledInput, JournalRecord
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.row_batch import Builder
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.lanes import LANES, REPORTS, LaneSpec
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.record import Record
from trainhouse.projections.store.clickhouse import EXACT_INSERT, ClickHouse, ConnectClickHouse
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.table_hashes import TableHash, differences
from trainhouse.projections.store.tables import TABLES

NOW = 1_800_000_000_000
CURVES: Mapping[str, Callable[[int], float]] = {"loss": lambda step: 1 / (step + 1), "lr": lambda step: 0.1}


@contextmanager
def engine_in(folder: Path) -> Iterator[ConnectClickHouse]:
    """An engine of its own with the newest tables."""
    made = connect_migrated(folder, 1024**3, 2)
    try:
        yield made
    finally:
        made.close()


class Killed(Exception):
    """Stands for the end of the process."""


class Killing:
    """A connection that ends at its nth insert: before it, after it, or in the middle of it."""

    def __init__(self, inner: ConnectClickHouse, at: int, how: str) -> None:
        self._inner = inner
        self._left = at
        self._how = how

    def command(self, sql: str) -> None:
        self._inner.command(sql)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._inner.rows(sql, parameters)

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        self._left -= 1
        if self._left != 0:
            self._inner.insert(table, data, token)
            return
        if self._how == "after":
            self._inner.insert(table, data, token)
        if self._how == "inside":
            insert_a_part(self._inner, table, data, token)
        raise Killed

    def close(self) -> None:
        pass


def insert_a_part(clickhouse: ConnectClickHouse, table: str, data: pa.Table, token: str) -> None:
    """A real insert of several blocks whose input ends in the middle: the engine keeps the blocks before that."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=2)
    whole = sink.getvalue().to_pybytes()
    settings = EXACT_INSERT | {"insert_deduplication_token": token, "min_insert_block_size_rows": "1", "max_insert_block_size": "2"}
    settings |= {"min_insert_block_size_bytes": "1", "input_format_parallel_parsing": "0"}
    with pytest.raises(Exception):  # noqa: B017
        clickhouse._client.raw_insert(table, insert_block=whole[: len(whole) * 2 // 3], fmt="ArrowStream", settings=settings)


def spec_of(name: str) -> LaneSpec:
    return next(s for s in LANES if s.name == name)


def builders(schemas: Mapping[str, pa.Schema]) -> dict[str, Builder]:
    """What makes rows of each topic; of control as if the scheduler had taken all that stands there."""
    found = {topic: lane.builder(schemas, NodeKeys(), senders_of()) for lane in LANES if lane.name != "reports" for topic in lane.topics}
    return found | {topics.CONTROL: FactsBuilder(REPORTS, schemas)}


def journaled(control: Record, seq: int) -> bytes:
    """The journal record of a scheduler that took one record of control."""
    told = JournaledInput(control.offset, decode(control.value, control.headers))
    event, noted = told.envelope.event if told.envelope else None, ()
    if isinstance(event, CheckpointCompleted):
        last = LastCheckpoint(commit=event.commit, step=event.step, uri=event.uri, completed_at_ms=event.at_ms)
        noted = (CheckpointNoted(job_id=event.job_id, checkpoint=last),)
    return JournalRecord(seq, "o", control.timestamp_ms, control.offset, (told,), noted, 0, 1, 1, "0" * 64).encode()


def of_lane(log: MemoryLog, spec: LaneSpec) -> MemoryLog:
    """The records of a lane's topics alone; of the lane of reports what its scheduler would have journaled of control."""
    found = MemoryLog()
    if spec.name == "reports":
        for record in log.records:
            if record.topic == topics.CONTROL:
                seq = found.ends.get((topics.DECISIONS, record.partition), 0) + 1
                found.append(topics.DECISIONS, journaled(record, seq), partition=record.partition)
        return found
    found.records, found.ends = [r for r in log.records if r.topic in spec.topics], log.ends
    return found


def lane_of(name: str, clickhouse: ClickHouse, log: MemoryLog, max_records: int = 4, keys: NodeKeys | None = None) -> Lane:
    spec = spec_of(name)
    builder = spec.builder(read_schemas(clickhouse, TABLES), keys or NodeKeys(), senders_of(keys))
    return Lane(name, MemorySource(of_lane(log, spec), max_records), clickhouse, builder, Pace(0, 0))


def drain(name: str, clickhouse: ClickHouse, log: MemoryLog, max_records: int = 4, keys: NodeKeys | None = None) -> None:
    """One life of a lane: recovers, then ingests all that is there."""
    lane = lane_of(name, clickhouse, log, max_records, keys)
    lane.recover()
    while records := lane._source.poll(0):
        lane.ingest(records)
    lane._positions.settle()


def alike_however_cut(
    folder: Path,
    live: Callable[[Any, int], None],
    shown: Callable[[ConnectClickHouse], list[TableHash]],
    cuts: Iterable[int],
    how: str,
    sizes: tuple[int, int],
) -> None:
    """A life by any batches gives the same tables, and so does one that ends at an insert and is followed by another.

    `live` takes a connection and how many records are read at once, for the two lives of a cut from `sizes`; `how` is that of `Killing`.
    """
    found = []
    for at_once in (1, 100):
        with engine_in(folder / f"by-{at_once}") as clickhouse:
            live(clickhouse, at_once)
            found.append(shown(clickhouse))
    for at_insert in cuts:
        with engine_in(folder / f"cut-{at_insert}") as clickhouse:
            with pytest.raises(Killed):
                live(Killing(clickhouse, at_insert, how), sizes[0])
            live(clickhouse, sizes[1])
            found.append(shown(clickhouse))
    assert all(differences(found[0], other) == [] for other in found[1:])


def append(log: MemoryLog, topic: str, event: Event, event_id: str) -> None:
    envelope = envelope_of(event, id=event_id, source="test", now_ms=NOW)
    log.append(topic, encode(envelope), key=envelope.subject.encode(), timestamp_ms=NOW)


def metrics(
    start: int, count: int, *, every_ms: int = 1, curves: Mapping[str, Callable[[int], float]] = CURVES, **more: Any
) -> StepMetrics:
    """Points [start, start + count), `every_ms` apart."""
    return spooled.points(start, count, lambda step: NOW + every_ms * step, curves, **more)


def lines(start: int, count: int, **more: Any) -> LogLines:
    """Lines [start, start + count)."""
    return spooled.lines(start, count, lambda n: f"line {n}", NOW, **more)


def three_records() -> MemoryLog:
    log = MemoryLog()
    for n in range(3):
        append(log, topics.METRICS, metrics(n * 7, 7), f"m{n}")
        log.skip(topics.METRICS)
    return log
