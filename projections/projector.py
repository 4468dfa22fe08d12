"""The projector's process: migrations, one thread a lane from Kafka into ClickHouse, and the read-only SQL endpoint.

Holds: the embedded engine belongs to this process alone, one connection a role; a lane that cannot go on ends the process, and the
next start goes on where the tables stand. Ends on SIGTERM and SIGINT after the batch at hand.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import structlog

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.bus.repair_log import emptied_records_patiently
from trainhouse.events.model.errors import EventError
from trainhouse.events.runtime.metrics_server import new_registry, serve
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.endpoint.audit_way import AuditWay
from trainhouse.projections.endpoint.door import Account, Door
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.endpoint.guests import GuestProcess
from trainhouse.projections.endpoint.mirror import OF_THE_WRITER
from trainhouse.projections.endpoint.server import Admission, Endpoint
from trainhouse.projections.endpoint.sql_audit import SqlAudit
from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.ingest.catchup import CatchUpLane, plan
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.lane_threads import LaneThreads
from trainhouse.projections.ingest.lanes import LANES
from trainhouse.projections.ingest.node_keys import KafkaNodeKeys
from trainhouse.projections.ingest.placements import LANE as DECISIONS_LANE
from trainhouse.projections.ingest.placements import KafkaPlacements
from trainhouse.projections.ingest.reader import PROJECTOR_GROUP, KafkaSource
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.ingest.topic_history import KafkaHistory
from trainhouse.projections.process_metrics import LaneLag, LaneMeters, QueryMeters
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings
from trainhouse.projections.shutdown import on_signal
from trainhouse.projections.store.clickhouse import ClickHouse, connect_embedded, connect_server, embedded_options
from trainhouse.projections.store.migrate import migrate
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

log = structlog.get_logger(__name__)

Connect = Callable[[], ClickHouse]


def main(kafka: KafkaSettings, projector: ProjectorSettings, clickhouse: ClickHouseSettings, archive: ArchiveStore | None = None) -> int:
    """Runs until a signal. Returns 0 after one, 1 when a lane could not go on. Blocks."""
    stop = on_signal()
    os.environ.setdefault("TZ", "UTC")
    try:
        failures = run(kafka, projector, clickhouse, stop, archive=archive)
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
    archive: ArchiveStore | None = None,
) -> dict[str, BaseException]:
    """Runs until `stop` is set or a lane fails; returns what failed. `ready` is told the endpoint's port (0 without one).

    `archive`: where records of journals are that the topics no longer hold.
    """

    def connect() -> ClickHouse:
        if projector.server:
            return connect_server(clickhouse)
        return connect_embedded(projector.data_dir, projector.memory_bytes, projector.merge_threads)

    registry = new_registry()
    meters, behind, queries = LaneMeters(registry), LaneLag(registry), QueryMeters(registry)
    with contextlib.ExitStack() as stack:
        serving = serve(registry)
        if serving is not None:
            stack.callback(serving.close)
        writer = connect()
        stack.callback(writer.close)
        applied = migrate(writer)
        if applied:
            log.info("migrations applied", names=applied)
        schemas = read_schemas(writer, TABLES)
        healthy = threading.Event()
        port = 0
        if not projector.server:
            port = stack.enter_context(_endpoint(projector, door_of(projector, clickhouse), writer, healthy, queries, kafka))
        keys = stack.enter_context(contextlib.closing(KafkaNodeKeys(kafka, projector.signatures == "required")))
        made: dict[str, Lane] = {}
        placements = stack.enter_context(contextlib.closing(KafkaPlacements(kafka, connect(), lambda: made[DECISIONS_LANE].next_offsets)))
        emptied = emptied_records_patiently(kafka, DECISIONS, stop, PROJECTOR_GROUP)
        senders = stack.enter_context(contextlib.closing(Senders(keys, placements, emptied)))
        lanes = LaneThreads(stop)
        stack.callback(lanes.join)
        for spec in LANES:
            source = KafkaSource(kafka, spec.topics, projector.batch_max_records, projector.batch_max_bytes, archive)
            linger_ms = projector.beats_linger_ms if spec.periodic else projector.batch_linger_ms
            pace = Pace(linger_ms / 1000, max(linger_ms, projector.batch_max_linger_ms) / 1000)
            lane = Lane(spec.name, source, connect(), spec.builder(schemas, keys, senders), pace, meters, spec.quiet_s, spec.done_s)
            for missing in plan(writer, spec.name, spec.tables):
                history = KafkaHistory(kafka, missing.ends, projector.batch_max_records, projector.batch_max_bytes, archive)
                lanes.add(CatchUpLane(missing, history, connect(), spec.builder(schemas, keys, senders)))
            made[spec.name] = lane
            behind.follow(spec.name, lambda source=source, lane=lane: source.lag_records(lane.next_offsets))  # type: ignore[misc]
            lanes.add(lane)
        lanes.start()
        if not stop.is_set():
            healthy.set()
            log.info("projecting", lanes=[s.name for s in LANES], port=port)
            if ready is not None:
                ready(port)
        stop.wait()
        lanes.join()
    return lanes.failures


def door_of(projector: ProjectorSettings, clickhouse: ClickHouseSettings) -> Door:
    """Returns the access control of the embedded engine. Raises ProjectionError where no password is set."""
    if not clickhouse.password:
        raise ProjectionError(
            "the SQL endpoint needs a password: set TRAINHOUSE_CLICKHOUSE_PASSWORD (and _USER), for the projector and all who ask it; "
            "`trainhouse up` makes one"
        )
    accounts = [Account(clickhouse.user, clickhouse.password)]
    if clickhouse.guest_user and clickhouse.guest_password:
        accounts.append(Account(clickhouse.guest_user, clickhouse.guest_password, guest=True))
    return Door(accounts, [projector.http_host, *projector.http_names])


@contextlib.contextmanager
def _endpoint(
    projector: ProjectorSettings, door: Door, writer: ClickHouse, healthy: threading.Event, meters: QueryMeters, kafka: KafkaSettings
) -> Iterator[int]:
    limits = Limits(projector.query_time_s, projector.query_result_rows, projector.query_result_bytes, projector.query_memory_bytes)
    options = embedded_options(projector.memory_bytes, projector.merge_threads)
    tighter = Limits(projector.guest_time_s, projector.guest_result_rows, projector.guest_result_bytes, projector.guest_memory_bytes)
    with contextlib.ExitStack() as stack:

        def desk(connections: int, waiting: int, bounds: Limits) -> Admission:
            pool = ReadPool(projector.data_dir, options, bounds, connections)
            stack.callback(pool.close)
            return Admission(pool, connections, waiting)

        own = desk(projector.query_connections, projector.query_waiting, limits)
        strangers = GuestProcess(projector.data_dir, writer.rows(OF_THE_WRITER), tighter, projector.guest_connections)
        strangers.start()
        stack.callback(strangers.close)
        guests = Admission(strangers, projector.guest_connections, projector.guest_waiting)
        way = AuditWay(kafka, projector.audit_waiting)
        stack.callback(way.close)
        audit = SqlAudit(way, required=projector.audit == "required")
        yield stack.enter_context(Endpoint(own, projector.http_host, projector.http_port, healthy, door, meters, guests, audit)).port
