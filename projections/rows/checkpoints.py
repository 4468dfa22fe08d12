"""Checkpoint events to `checkpoint_facts`: the base of the views `checkpoints`, `checkpoint_failures`, `checkpoint_restores`.

Holds: (job, commit) names a checkpoint, so a CheckpointCompleted that is sent again is the same row.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.checkpoint import (
    CheckpointCompleted,
    CheckpointDeleted,
    CheckpointEvent,
    CheckpointFailed,
    CheckpointPruned,
    CheckpointRestored,
    CheckpointStarted,
)
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, copy_version

_BLANK: dict[str, Any] = {
    "commit": -1,
    "occurrence": "",
    "step": 0,
    "uri": "",
    "bytes_total": 0,
    "bytes_new": 0,
    "stage_s": 0.0,
    "upload_s": 0.0,
    "restore_s": 0.0,
    "world_size": 0,
    "memory_nodes": [],
    "metrics": {},
    "reason": "",
}


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Facts of one checkpoint event; nothing for other events."""
    event = envelope.event
    if isinstance(event, CheckpointStarted):
        yield _fact(event, record, "started", occurrence=f"{event.epoch}/{event.step}", step=event.step, reason=event.reason)
    elif isinstance(event, CheckpointFailed):
        yield _fact(event, record, "failed", occurrence=f"{event.epoch}/{event.step}", step=event.step, reason=event.reason)
    elif isinstance(event, CheckpointCompleted):
        # The epoch is not part of the identity: whoever tells of a commit again tells of the same one.
        yield _fact(
            event,
            record,
            "completed",
            commit=event.commit,
            step=event.step,
            uri=event.uri,
            bytes_total=event.bytes_total,
            bytes_new=event.bytes_new,
            stage_s=event.stage_s,
            upload_s=event.upload_s,
            world_size=event.world_size,
            memory_nodes=[str(node_id) for node_id in event.memory_nodes],
            metrics=dict(event.metrics),
        )
    elif isinstance(event, CheckpointRestored):
        yield _fact(
            event,
            record,
            "restored",
            occurrence=str(event.epoch),
            commit=event.commit,
            step=event.step,
            uri=event.uri,
            restore_s=event.restore_s,
            reason="; ".join(event.damaged),
        )
    elif isinstance(event, CheckpointPruned):
        for commit in event.commits:
            yield _fact(event, record, "pruned", commit=commit)
    elif isinstance(event, CheckpointDeleted):
        yield _fact(event, record, "deleted", commit=event.commit, step=event.step, reason=event.user)


def _fact(event: CheckpointEvent, record: Record, fact: str, **values: Any) -> Row:
    common = {
        "job_id": str(event.job_id),
        "epoch": int(event.epoch),
        "attempt": int(event.attempt),
        "fact": fact,
        "at": clamp_ms(event.at_ms),
        "version": copy_version(record),
    }
    return Row("checkpoint_facts", common | _BLANK | values)
