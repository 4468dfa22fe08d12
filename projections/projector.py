"""The projector's process: migrations, one thread a lane from Kafka into ClickHouse, and the read-only SQL endpoint.

Holds: the embedded engine belongs to this process alone, one connection a role; a lane that cannot go on ends the process, and the
next start goes on where the tables stand. Ends on SIGTERM and SIGINT after the batch at hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np
import pyarrow as pa
import structlog

from trainhouse.events.errors import EventError
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.clickhouse import ClickHouse, connect_embedded, connect_server, embedded_options
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.endpoint.server import Endpoint
from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.lane import Lane, Pace
from trainhouse.projections.migrate import migrate
from trainhouse.projections.reader import KafkaSource
from trainhouse.projections.registry import LANES, TABLES
from trainhouse.projections.schema import read_schemas
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings

log = structlog.get_logger(__name__)

Connect = Callable[[], ClickHouse]


def main(kafka: KafkaSettings, projector: ProjectorSettings, clickhouse: ClickHouseSettings) -> int:
    """Runs until a signal. Returns 0 after one, 1 when a lane could not go on. Blocks."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    os.environ.setdefault("TZ", "UTC")
    try:
        failures = run(kafka, projector, clickhouse, stop)
    except (ProjectionError, EventError) as reason:
        log.error("the projector cannot start", error=str(reason))
        return 1
    for name, error in failures.items():
        log.error("a lane could not go on", lane=name, error=f"{type(error).__name__}: {error}")
    return 1 if failures else 0


def run(
    kafka: KafkaSettings,
    projector: ProjectorSettings,
    clickhouse: ClickHouseSettings,
    stop: threading.Event,
    ready: Callable[[int], None] | None = None,
) -> dict[str, BaseException]:
    """Runs until `stop` is set or a lane fails; returns what failed. `ready` is told the endpoint's port (0 without one)."""

    def connect() -> ClickHouse:
        if projector.server:
            return connect_server(clickhouse)
        return connect_embedded(projector.data_dir, projector.memory_bytes, projector.merge_threads)

    with contextlib.ExitStack() as stack:
        writer = connect()
        stack.callback(writer.close)
        applied = migrate(writer)
        if applied:
            log.info("migrations applied", names=applied)
        schemas = read_schemas(writer, TABLES)
        healthy = threading.Event()
        port = stack.enter_context(_endpoint(projector, healthy)) if not projector.server else 0
        lanes = _Lanes(stop)
        stack.callback(lanes.join)
        for spec in LANES:
            source = KafkaSource(kafka, spec.topics, projector.batch_max_records, projector.batch_max_bytes)
            pace = Pace(projector.batch_linger_ms / 1000, projector.batch_max_linger_ms / 1000)
            lanes.start(Lane(spec.name, source, connect(), spec.builder(schemas), pace))
        _warm_up()
        healthy.set()
        log.info("projecting", lanes=[s.name for s in LANES], port=port)
        if ready is not None:
            ready(port)
        stop.wait()
        lanes.join()
    return lanes.failures


def _warm_up() -> None:
    """Arrow imports pandas with its first array, which takes a second or more: not in the first batch, please."""
    pa.array(np.zeros(1))


@contextlib.contextmanager
def _endpoint(projector: ProjectorSettings, healthy: threading.Event) -> Iterator[int]:
    limits = Limits(projector.query_time_s, projector.query_result_rows, projector.query_result_bytes, projector.query_memory_bytes)
    options = embedded_options(projector.memory_bytes, projector.merge_threads)
    pool = ReadPool(projector.data_dir, options, limits, projector.query_connections)
    try:
        with Endpoint(
            pool, projector.http_host, projector.http_port, projector.query_connections, projector.query_waiting, healthy
        ) as endpoint:
            yield endpoint.port
    finally:
        pool.close()


class _Lanes:
    """The lanes' threads. The first failure stops all."""

    def __init__(self, stop: threading.Event) -> None:
        self.failures: dict[str, BaseException] = {}
        self._stop = stop
        self._threads: list[threading.Thread] = []

    def start(self, lane: Lane) -> None:
        thread = threading.Thread(target=self._run, args=(lane,), name=f"lane-{lane.name}")
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, lane: Lane) -> None:
        try:
            lane.run(self._stop)
        except Exception as error:
            self.failures[lane.name] = error
            self._stop.set()
        finally:
            lane.close()
