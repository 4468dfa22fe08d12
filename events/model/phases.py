"""Phases of a job's life, as the journal holds them: one frozen variant per phase, never a bundle of flags.

Holds: a phase carries what is true in that phase alone; `kind` tells the variants apart on the wire.
Never: says which phase may follow which (`scheduler.core.state.transitions` does).
"""

import operator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import MOST_ITEMS, Count, CutText, DueMs, DurationS, Metric, Port, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.evidence import AttemptEvidence
from trainhouse.events.model.gang import NodePlacement
from trainhouse.events.model.ids import AttemptNumber, Epoch, NodeId
from trainhouse.events.model.job import JobState


class StopKind(StrEnum):
    """Reason that an attempt is ended before its ranks end by themselves; it decides what becomes of its job."""

    RANK_FAILED = "RANK_FAILED"
    LOST = "LOST"
    FATAL = "FATAL"
    CANCELLED = "CANCELLED"
    RUN_TIME = "RUN_TIME"
    PREEMPTED = "PREEMPTED"
    MOVED = "MOVED"
    RESIZED = "RESIZED"
    DRAINED = "DRAINED"
    HUNG = "HUNG"
    DIVERGED = "DIVERGED"
    REVIEW = "REVIEW"

    @property
    def is_failure(self) -> bool:
        """Whether something went wrong, be it the job's fault or not."""
        return self in (StopKind.RANK_FAILED, StopKind.LOST, StopKind.FATAL, StopKind.HUNG, StopKind.DIVERGED)

    @property
    def makes_way(self) -> bool:
        """Whether the job did nothing to end: its devices are wanted otherwise, and it is queued again at no cost to its restarts."""
        return self in (StopKind.PREEMPTED, StopKind.MOVED, StopKind.RESIZED, StopKind.DRAINED)


class StopCause(Model):
    """The kind, and the reason for a person."""

    kind: StopKind = Field(description="kind of the cause")
    reason: CutText


class Pending(Model):
    """Waits for its gang's devices, not before `not_before_ms`."""

    kind: Literal["pending"] = Field("pending", description="name of the phase")
    not_before_ms: DueMs = Field(0, description="earliest time of the next start, in milliseconds since 1970")


class Scheduled(Model):
    """Has its devices; not every node has started its ranks. `session`: rank 0 has opened one already."""

    kind: Literal["scheduled"] = Field("scheduled", description="name of the phase")
    session: bool = Field(False, exclude_if=operator.not_, description="whether rank 0 has opened a session")


class Initializing(Model):
    """Every rank has a process; no progress yet. `session`: rank 0 has opened one, which will report progress."""

    kind: Literal["initializing"] = Field("initializing", description="name of the phase")
    since_ms: DueMs
    session: bool = Field(False, exclude_if=operator.not_, description="whether rank 0 has opened a session")


class Running(Model):
    """Trains."""

    kind: Literal["running"] = Field("running", description="name of the phase")
    since_ms: DueMs


class Checkpointing(Model):
    """Saves before its gang is released, until `deadline_ms` at the latest; `cause` is what the release is for."""

    kind: Literal["checkpointing"] = Field("checkpointing", description="name of the phase")
    deadline_ms: DueMs = Field(description="time by which it must have saved, in milliseconds since 1970")
    cause: StopCause = Field(description="why it leaves")


class Stopping(Model):
    """Its gang is released; nodes have yet to say that nothing is left. `shown` is the state that users go on seeing."""

    kind: Literal["stopping"] = Field("stopping", description="name of the phase")
    shown: JobState = Field(description="state that users see meanwhile")
    cause: StopCause = Field(description="why it stops")
    grace_s: DurationS = Field(description="seconds between SIGTERM and SIGKILL")
    remind_at_ms: DueMs = Field(description="time at which nodes are asked again, in milliseconds since 1970")
    since_ms: DueMs | None = None


class UnderReview(Model):
    """Has no devices, and waits until a person decides whether it goes on; then not before `not_before_ms`, if it paused."""

    kind: Literal["review"] = Field("review", description="name of the phase")
    not_before_ms: DueMs = Field(0, exclude_if=operator.not_, description="earliest time of the next start, in milliseconds since 1970")


class Succeeded(Model):
    """Every rank exited with code 0."""

    kind: Literal["succeeded"] = Field("succeeded", description="name of the phase")


class Failed(Model):
    """Ended without success, and will not be tried again."""

    kind: Literal["failed"] = Field("failed", description="name of the phase")


class Cancelled(Model):
    """Ended because somebody asked for it."""

    kind: Literal["cancelled"] = Field("cancelled", description="name of the phase")


class Rejected(Model):
    """Refused by the scheduler: no gang like this can ever be held."""

    kind: Literal["rejected"] = Field("rejected", description="name of the phase")


Phase = Annotated[
    Pending | Scheduled | Initializing | Running | Checkpointing | Stopping | UnderReview | Succeeded | Failed | Cancelled | Rejected,
    Field(discriminator="kind"),
]


class PartEnd(StrEnum):
    """End of a node's part of an attempt."""

    STOPPED = "STOPPED"
    LOST = "LOST"


class EndedPart(Model):
    """A node of which nothing more is expected in this attempt."""

    node_id: NodeId
    how: PartEnd
    at_ms: TimestampMs


class Allotment(Model):
    """The gang of one attempt, and what its nodes have reported. Tuples are sorted."""

    attempt: AttemptNumber
    epoch: Epoch
    placements: tuple[NodePlacement, ...] = Field(max_length=MOST_ITEMS)
    master_address: ShortText
    master_port: Port
    allocated_at_ms: TimestampMs
    started: tuple[NodeId, ...] = Field((), max_length=MOST_ITEMS)
    ended: tuple[EndedPart, ...] = Field((), max_length=MOST_ITEMS)
    clean_ranks: tuple[SmallCount, ...] = Field((), max_length=MOST_ITEMS)
    evidence: AttemptEvidence = AttemptEvidence()
    restore_at_most: Count | None = None
    accepted_bad: Count | None = Field(None, exclude_if=is_absent)


class Progress(Model):
    """The newest that an attempt told of its training. `saved_alone`: a rank that is left when others die can save for all of them."""

    epoch: Epoch
    at_ms: TimestampMs
    step: Count
    total_steps: Count | None = Field(None, description="steps that the session aims at")
    loss: Metric | None = None
    learning_rate: Metric | None = None
    steps_per_s: Metric | None = None
    samples_per_s: Metric | None = None
    saved_alone: bool | None = Field(None, description="whether each rank holds the whole state")


class Tally(Model):
    """Usage of a job: restarts after failures of its own, after losses of the fleet's, and time with devices.

    `streak` counts attempts that ended without having got anywhere, for the backoff; `hangs` those that hung since the last checkpoint;
    `rollbacks` the times that it went back because its loss diverged.
    """

    failures: SmallCount = Field(0, description="restarts after failures of its own")
    losses: SmallCount = Field(0, description="restarts after losses of the fleet's")
    streak: SmallCount = Field(0, description="attempts in a row that made no progress")
    ran_ms: Count = Field(0, description="milliseconds for which it has had devices")
    hangs: SmallCount = Field(0, description="attempts that hung since the last checkpoint")
    rollbacks: SmallCount = Field(0, description="rollbacks after a diverged loss")

    @property
    def restarts(self) -> int:
        """Restarts after failures, the job's own and others; a gang that made way is none."""
        return self.failures + self.losses + self.rollbacks
