"""Builds all tables anew from the topics, in a folder beside the one that serves; then the folders can be swapped.

Why a fresh folder: the embedded engine belongs to the projector's process, and a rebuild must neither stop it nor write among its tables.
What it builds is what an empty projector would: the same lanes, the same positions, so that the projector goes on from there. A
ClickHouse server needs none of this: point the projector at an empty database, and it fills it while the old one serves.
Holds: safe to interrupt: the next rebuild into the folder goes on. The old folder is moved aside, never removed.
Never: opens the folder that serves, but to see that nobody holds it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.bus.repair_log import emptied_records
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.ingest.catchup import plan
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.lanes import LANES, LaneSpec
from trainhouse.projections.ingest.node_keys import KafkaNodeKeys
from trainhouse.projections.ingest.placements import LANE as DECISIONS_LANE
from trainhouse.projections.ingest.placements import KafkaPlacements
from trainhouse.projections.ingest.reader import PROJECTOR_GROUP, KafkaSource
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.ingest.topic_history import History, KafkaHistory, Place, ends_of
from trainhouse.projections.settings import ProjectorSettings
from trainhouse.projections.store.clickhouse import ClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.table_hashes import TableHash, table_hashes
from trainhouse.projections.store.tables import TABLES


@dataclass(frozen=True)
class Rebuilt:
    """Result of a rebuild: records read, the time that it took, and the tables' hashes."""

    records: int
    elapsed_s: float
    hashes: list[TableHash]


def rebuild(
    kafka: KafkaSettings, projector: ProjectorSettings, folder: Path, stop: threading.Event, archive: ArchiveStore | None = None
) -> Rebuilt:
    """Reads all topics up to their present ends into the engine in `folder`. Blocks. Raises ProjectionError, EventError.

    Sets `stop` where a lane fails, so that no other one waits for it.
    """

    def connect() -> ClickHouse:
        return connect_embedded(folder, projector.memory_bytes, projector.merge_threads)

    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(contextlib.closing(connect()))
        keys = stack.enter_context(contextlib.closing(KafkaNodeKeys(kafka, projector.signatures == "required")))
        migrate(writer)
        schemas = read_schemas(writer, TABLES)
        made: dict[str, Lane] = {}
        ends = _ends_of_lanes(kafka)
        placements = stack.enter_context(
            contextlib.closing(
                KafkaPlacements(kafka, connect(), lambda: made[DECISIONS_LANE].next_offsets, lambda: ends[DECISIONS_LANE]),
            )
        )
        emptied = emptied_records(kafka, DECISIONS, PROJECTOR_GROUP)
        senders = stack.enter_context(contextlib.closing(Senders(keys, placements, emptied)))

        def lane_of(spec: LaneSpec) -> tuple[Lane, History]:
            source = KafkaHistory(kafka, ends[spec.name], projector.batch_max_records, projector.batch_max_bytes, archive)
            made[spec.name] = Lane(spec.name, source, connect(), spec.builder(schemas, keys, senders), Pace(0, 0))
            return made[spec.name], source

        def fill(one: tuple[Lane, History]) -> int:
            try:
                return fill_lane(*one, stop)
            except Exception:
                stop.set()  # or those that wait for this one would wait for ever
                raise

        for spec in LANES:
            if plan(writer, spec.name, spec.tables):
                raise ProjectionError(f"another version began a rebuild into {folder}; remove that folder, and rebuild again")
        began_s = time.monotonic()
        lanes = [lane_of(spec) for spec in LANES]
        with ThreadPoolExecutor(len(LANES)) as threads:
            records = sum(threads.map(fill, lanes))
        elapsed_s = time.monotonic() - began_s
        if stop.is_set():
            raise ProjectionError(f"the rebuild was interrupted; the next one into {folder} goes on from there")
        return Rebuilt(records, elapsed_s, table_hashes(writer))


def _ends_of_lanes(kafka: KafkaSettings) -> dict[str, dict[Place, int]]:
    """Up to where each lane reads. The journal's ends are asked last: of all that the others read it has the attempts."""
    found = {}
    for spec in sorted(LANES, key=lambda spec: spec.name == DECISIONS_LANE):
        reader = KafkaSource(kafka, spec.topics, 1, 1)
        found[spec.name] = ends_of(reader)
        reader.close()
    return found


def fill_lane(lane: Lane, source: History, stop: threading.Event) -> int:
    """Runs a lane over a source that ends; returns how many records it read. Blocks; leaves the lane closed."""
    try:
        lane.recover()
        while not stop.is_set():
            records = source.poll(0)
            if records and not lane.ready(records, stop):
                break
            if records:
                lane.ingest(records)
            elif source.finished:
                break
        lane.settle()
        return lane.records
    finally:
        lane.close()


def swap(projector: ProjectorSettings, folder: Path) -> Path | None:
    """Puts `folder` in the place of the projector's and returns where the old one is now, if there was one.

    Raises ProjectionError when a projector still holds it. Interrupted between its two moves there is no folder in the place: a projector
    that starts then would build all tables by itself; another swap finishes the work.
    """
    place = projector.data_dir
    if not folder.is_dir():
        raise ProjectionError(f"{folder} is not there; run the rebuild first")
    old: Path | None = None
    if place.exists():
        connect_embedded(place, projector.memory_bytes, projector.merge_threads).close()  # refused while another process holds it
        old = place.with_name(f"{place.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        place.rename(old)
    folder.rename(place)
    return old
