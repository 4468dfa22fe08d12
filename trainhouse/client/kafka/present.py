"""The control plane's own state, now or at a moment, read from its journal.

Holds: what is given is exactly what the scheduler had folded; the newest snapshot saves time where it fits. Blocks on the brokers.
Never: writes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainhouse.client.errors import JournalBrokenError

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.core.state.state import ScheduleState
    from trainhouse.scheduler.stream.interfaces import SnapshotStore
    from trainhouse.scheduler.time_travel import Past

# Later than any record can be.
NOW_MS = 2**62


def schedule_at(kafka: "KafkaSettings", at_ms: int = NOW_MS, partitions: Iterable[int] | None = None) -> "Past[ScheduleState]":
    """The scheduler's partitions as of a moment. Raises NoSuchMomentError, or JournalBrokenError where it was altered."""
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.events.wire.topics import DECISIONS
    from trainhouse.scheduler.core.errors import BrokenInvariant
    from trainhouse.scheduler.core.schedule import ScheduleMachine
    from trainhouse.scheduler.stream.history.journal_replay import past_of

    try:
        store = snapshot_store()
        archive = ObjectArchive() if store is not None else None
        return past_of(kafka, DECISIONS, ScheduleMachine(), at_ms, partitions=partitions, store=store, archive=archive)
    except BrokenInvariant as error:
        raise JournalBrokenError(f"{DECISIONS} cannot be folded: {error}. `trainhouse replay --verify` tells more") from error


def being_moved(states: "Iterable[ScheduleState]", job_id: str) -> str:
    """Line about a job whose pool one of these partitions handed over, and none has taken yet; empty of any other job."""
    from trainhouse.scheduler.core.handlers.handover import on_its_way

    move = on_its_way(states, job_id)
    if move is None:
        return ""
    pool, from_partition, to_partition = move
    return (
        f"pool {pool} of {job_id} is being moved: partition {from_partition} has handed it over, and partition {to_partition} has not "
        "taken it yet"
    )


def snapshot_store() -> "SnapshotStore | None":
    """Store of snapshots; None if the object store does not answer, in which case the whole journal is read."""
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore
    from trainhouse.client.kafka.snapshots import ObjectSnapshots

    store = ObjectSnapshots(S3ObjectStore(StoreSettings()))
    try:
        store.get("snapshots")
    except CheckpointError:
        return None
    return store
