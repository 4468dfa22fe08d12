"""Tables that rules of alerts ask: real events through the real builders into the embedded engine, asked over its real HTTP endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.tables.migrated import connect_migrated
from tests.support.tables.projecting import builders
from trainhouse.events.model.base import Event
from trainhouse.events.model.node import NodeHeartbeat
from trainhouse.events.model.telemetry import StepMetrics
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.projections.alerts.query import Ask, asker
from trainhouse.projections.endpoint.door import Account, Door
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.endpoint.server import Admission, Endpoint
from trainhouse.projections.record import Record
from trainhouse.projections.settings import ClickHouseSettings
from trainhouse.projections.store.clickhouse import ConnectClickHouse, embedded_options
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

SQL_PASSWORD = "of-the-tests"  # pragma: allowlist secret
MEMORY = 1024**3
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class Tables:
    """Give it events, ask it anything."""

    def __init__(self, clickhouse: ConnectClickHouse, url: str) -> None:
        self.clickhouse = clickhouse
        self.url = url
        self.ask: Ask = asker(ClickHouseSettings(url=url), 120.0)
        schemas = read_schemas(clickhouse, TABLES)
        self._builders = builders(schemas)
        self._offset = 0

    def put_records(self, records: Sequence[Record]) -> None:
        """One batch of one topic's records, as the projector would insert it."""
        topic, builder = records[0].topic, self._builders[records[0].topic]
        for table, rows in builder.build(records, dict.fromkeys(builder.streams(records), 0)).tables.items():
            self.clickhouse.insert(table, rows, f"{topic}:{records[-1].offset}:{table}:records")

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """One row of one table alone; columns that it does not name have their defaults."""
        self.clickhouse.command(f"INSERT INTO {table} FORMAT JSONEachRow {json.dumps(row)}")

    def put(self, topic: str, events: Iterable[Event], at_ms: int = 0, event_id: str | None = None) -> None:
        """One batch of a topic, as the projector would insert it. `at_ms`: when those were told that do not say when they happened;
        `event_id`: the events' id, one of their own for each by default."""
        records = []
        for event in events:
            self._offset += 1
            envelope = envelope_of(event, id=event_id or f"e{self._offset}", source="test", now_ms=getattr(event, "at_ms", at_ms))
            records.append(Record(topic, 0, self._offset, 0, envelope.subject.encode(), encode(envelope)))
        builder = self._builders[topic]
        built = builder.build(records, dict.fromkeys(builder.streams(records), 0))
        assert not built.unreadable
        for table, rows in built.tables.items():
            self.clickhouse.insert(table, rows, f"{topic}:{self._offset}:{table}")

    def journal(self, partition: int, records: Iterable[JournalRecord]) -> None:
        """Records of the scheduler's journal, from its beginning, in one batch."""
        written = [Record(topics.DECISIONS, partition, n, 0, b"", record.encode()) for n, record in enumerate(records)]
        builder = self._builders[topics.DECISIONS]
        built = builder.build(written, dict.fromkeys(builder.streams(written), 0))
        assert not built.unreadable
        for table, rows in built.tables.items():
            self.clickhouse.insert(table, rows, f"journal:{partition}:{table}")


@contextmanager
def tables_in(folder: Path) -> Iterator[Tables]:
    """An engine of its own with the newest tables, and its endpoint."""
    clickhouse = connect_migrated(folder, MEMORY, 2)
    try:
        healthy = threading.Event()
        healthy.set()
        pool = ReadPool(folder, embedded_options(MEMORY, 2), Limits(120.0, 200_000, 64 * 1024**2, 512 * 1024**2), 3)
        with Endpoint(Admission(pool, 3, 16), "127.0.0.1", 0, healthy, Door([Account("trainhouse", SQL_PASSWORD)])) as served:
            yield Tables(clickhouse, f"http://trainhouse:{SQL_PASSWORD}@127.0.0.1:{served.port}")
        pool.close()
    finally:
        clickhouse.close()


def beat(
    node: str,
    at_ms: int,
    *,
    pool: str,
    used: Mapping[str, float] | None = None,
    job: str = "",
    step: int | None = 10,
    waited_s: float = 0.0,
    stalled_s: float = 0.0,
    spool_bytes: int = 0,
) -> NodeHeartbeat:
    """A node's heartbeat: `used` is the utilization of its devices, all of which the job's ranks hold."""
    devices = dict(used or {})
    ranks = [
        {"rank": n, "device_id": d, "pid": 1, "state": "RUNNING", "step": step, "data_wait_s": waited_s, "save_stall_s": stalled_s}
        for n, d in enumerate(devices)
    ]
    part = [{"job_id": job, "attempt": 1, "epoch": 1, "ranks": ranks}] if job else []
    return NodeHeartbeat.model_validate(
        {
            "node_id": node,
            "boot_id": "b",
            "incarnation": "i",
            "pool": pool,
            "sequence": 1,
            "at_ms": at_ms,
            "interval_s": 10,
            "attempts": part,
            "devices": [{"device_id": d, "utilization_pct": pct} for d, pct in devices.items()],
            "spool_lag_bytes": spool_bytes,
        }
    )


def metric(job: str, name: str, values: Mapping[int, float]) -> StepMetrics:
    """Points of rank 0 by time."""
    steps = tuple(range(len(values)))
    about: dict[str, Any] = {"job_id": job, "attempt": 1, "epoch": 1, "rank": 0, "node_id": "n", "start": 0, "end": 10 * len(steps)}
    points = {"steps": steps, "times_ms": tuple(values), "offsets": tuple(10 * s for s in steps), "metrics": {name: tuple(values.values())}}
    return StepMetrics.model_validate(about | points)


def verdict(kind: str, at_ms: int, pool: str, **more: Any) -> tuple[str, Event]:
    """A verdict by the name of its class."""
    from trainhouse import events

    gang = {"job_id": "j", "attempt": 1, "epoch": 1} if kind in ("GangHung", "FailureBlamed", "StragglerDetected") else {}
    return topics.VERDICTS, getattr(events, kind).model_validate({"pool": pool, "at_ms": at_ms, **gang, **more})
