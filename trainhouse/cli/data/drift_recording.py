"""Comparison of a version that was published with the versions before it, sent for the tables and for alerts.

Holds: a comparison has the same event id whenever it is made; a version that cannot be read, or has no distributions, is passed over.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.client.dataset_versions import DatasetVersions
from trainhouse.events import DatasetDriftMeasured, DatasetVersion, envelope_of
from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import TRACKING
from trainhouse.workers.data.drift.version_drift import drift_of
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.stored_versions import read_profiled

MOST_COMPARED: Final = 16
"""Earlier versions that a new one is compared with: jobs may still train on them."""
_SOURCE: Final = "trainhouse/client"

PassedOver = Callable[[str, Exception], None]
"""Is called with a version that cannot be read, and why."""


def comparisons(
    published: DatasetVersion, versions: DatasetVersions, objects: ObjectStore, user: str, passed_over: PassedOver
) -> Iterator[DatasetDriftMeasured]:
    """The version against each of the newest before it, its predecessor first among those not deprecated. Blocks on the store. Raises
    DamagedShardError, CheckpointError."""
    predecessor = versions.predecessor(published.name)
    after = read_profiled(objects, published.project, published.sha256)
    for earlier in versions.before(published.name)[:MOST_COMPARED]:
        try:
            before = read_profiled(objects, earlier.version.project, earlier.version.sha256)
        except (DamagedShardError, CheckpointError) as error:
            passed_over(str(earlier.version.name), error)
            continue
        yield drift_of(before, after).event(
            dataset=published.dataset,
            project=published.project,
            sha256=published.sha256,
            against=earlier.version.sha256,
            predecessor=earlier is predecessor,
            user=user,
            at_ms=wall_ms(),
        )


def send_comparisons(kafka: KafkaSettings, events: list[DatasetDriftMeasured]) -> None:
    """Returns when the brokers have them. Blocks. Raises BusUnavailableError."""
    if not events:
        return
    producer = EventProducer(kafka, **ONE_SHOT, log_level=0)
    for event in events:
        envelope = envelope_of(event, id=_event_id(event), source=_SOURCE, now_ms=event.at_ms)
        producer.send(TRACKING, envelope, key=event.dataset)
    producer.flush()


def _event_id(event: DatasetDriftMeasured) -> str:
    named = f"{event.dataset} {event.sha256} {event.against_sha256}"
    return f"drift-{hashlib.sha256(named.encode()).hexdigest()[:32]}"
