"""Events of checkpoints.

Holds: a CheckpointCompleted follows the manifest it names, its event id is `{job}:commit:{n}`, and a repeat means the same commit. A
CheckpointDeleted follows the deletion, its event id is `{job}:deleted:{n}`; the epoch and attempt are those that saved the checkpoint.
"""

from typing import Final

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import (
    MOST_ITEMS,
    MOST_LISTED,
    ByteCount,
    Count,
    CutText,
    LongText,
    Metric,
    ReportedS,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId

MOST_METRICS: Final = 32
"""Metrics that the event of a checkpoint has; its manifest has all."""


class CheckpointEvent(Event):
    """Common fields of checkpoint events."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    at_ms: TimestampMs


class CheckpointStarted(CheckpointEvent, type="trainhouse.checkpoint.started.v1"):
    """The ranks began to save."""

    step: Count
    reason: CutText = ""


class CheckpointCompleted(CheckpointEvent, type="trainhouse.checkpoint.completed.v1"):
    """The manifest of commit `commit` exists. `bytes_new` were uploaded, the rest of `bytes_total` was there already."""

    commit: Count
    step: Count
    uri: LongText = Field(description="place of the manifest in the object store")
    bytes_total: ByteCount = Field(description="bytes of the whole checkpoint")
    bytes_new: ByteCount = Field(description="bytes that were uploaded for it; the rest was there already")
    stage_s: ReportedS = Field(0.0, description="seconds for which training stood still to copy the state")
    upload_s: ReportedS = Field(0.0, description="seconds of the upload, beside training")
    world_size: SmallCount = Field(1, description="ranks that saved it")
    memory_nodes: tuple[NodeId, ...] = Field(
        (), max_length=MOST_ITEMS, description="nodes that had chunks of it in memory, beside the store, when it was committed"
    )
    metrics: dict[ShortText, Metric] = Field(
        default_factory=dict,
        max_length=MOST_METRICS,
        exclude_if=is_absent,
        description="newest values of metrics when it was saved; of more than 32 those that were logged last",
    )


class CheckpointFailed(CheckpointEvent, type="trainhouse.checkpoint.failed.v1"):
    """A save did not become a checkpoint; the older ones stand."""

    step: Count
    reason: CutText


class CheckpointSkipped(CheckpointEvent, type="trainhouse.checkpoint.skipped.v1"):
    """The spec asks for checkpoints and one was due, but the job's code tracks nothing to save. Emitted once per attempt."""

    step: Count
    reason: CutText


class CheckpointRestored(CheckpointEvent, type="trainhouse.checkpoint.restored.v1"):
    """An attempt began from this commit. `damaged` names newer ones that were passed over, with the reason."""

    commit: Count
    step: Count
    uri: LongText = Field(description="place of the manifest in the object store")
    damaged: tuple[CutText, ...] = Field((), max_length=MOST_ITEMS, description="newer checkpoints that were passed over, with the reason")
    restore_s: ReportedS = Field(0.0, description="seconds that reading it took")


class CheckpointPruned(CheckpointEvent, type="trainhouse.checkpoint.pruned.v1"):
    """Retention removed these commits."""

    commits: tuple[Count, ...] = Field(max_length=MOST_LISTED, description="numbers of the checkpoints that were removed")
    bytes_freed: ByteCount = Field(0, description="bytes that no checkpoint names any more")


class CheckpointDeleted(CheckpointEvent, type="trainhouse.checkpoint.deleted.v1"):
    """An operator deleted this commit. No node signs it: it is on the topic of what clients record."""

    commit: Count
    step: Count
    user: CutText = Field(description="who deleted it, as their machine calls them")
