"""Events about jobs: what outsiders ask for, what intake makes of it, and the public status.

Holds: a JobStatus is the whole current status of a job; readers need no other record.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_ITEMS,
    ComputedS,
    Count,
    CutText,
    DueMs,
    LongText,
    Metric,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.gang import NodePlacement
from trainhouse.events.model.ids import AttemptNumber, Epoch, EventId, JobId, PoolName
from trainhouse.events.model.spec import JobSpec, Limits, is_absent


class JobState(StrEnum):
    """Every state that a job can be in, as users see it."""

    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    CHECKPOINTING = "CHECKPOINTING"
    PREEMPTED = "PREEMPTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    REJECTED = "REJECTED"
    NEEDS_REVIEW = "NEEDS_REVIEW"

    @property
    def final(self) -> bool:
        """True when the job will never run again."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED)


class JobSubmitted(Event, type="trainhouse.job.submitted.v1", public_input=True):
    """Somebody asks for a job. The same id with the same spec is the same job.

    `asked_as`: the role with which a gateway let `spec.user` in; absent: nobody vouches for that name.
    """

    job_id: JobId
    spec: JobSpec
    asked_as: str | None = Field(None, max_length=32, exclude_if=is_absent)


class CancelJob(Event, type="trainhouse.job.cancel.v1", public_input=True):
    """Somebody asks that a job end now. May overtake its submission."""

    job_id: JobId
    reason: str = Field("cancelled by its user", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class ChangeJob(Event, type="trainhouse.job.change.v1", public_input=True):
    """Somebody asks to change what may change of an admitted job: its priority or its limits."""

    job_id: JobId
    priority: int | None = Field(None, ge=0, le=100)
    limits: Limits | None = None
    requested_by: RequestedBy | None = None


class ReviewAction(StrEnum):
    """SEND: a job leaves its devices, or its queue, and is NEEDS_REVIEW. GO_ON: it is PENDING again. CANCEL: it is CANCELLED."""

    SEND = "send"
    GO_ON = "go_on"
    CANCEL = "cancel"


class ReviewJob(Event, type="trainhouse.job.review.v1", public_input=True):
    """A request to send a job to review, or to end its review."""

    job_id: JobId
    action: ReviewAction
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class JobReviewed(Event, type="trainhouse.job.reviewed.v1"):
    """A job's scheduler obeyed a ReviewJob. `event_id`: the request's; `user` and `reason`: whose it was, and why."""

    job_id: JobId
    action: ReviewAction
    event_id: EventId
    pool: PoolName
    user: CutText
    reason: CutText = ""
    at_ms: DueMs


class PoolCreated(Event, type="trainhouse.pool.created.v1", public_input=True):
    """A pool exists and belongs to one partition of control, until it is moved."""

    pool: PoolName
    partition: int = Field(ge=0, lt=1024)
    requested_by: RequestedBy | None = None


class JobAdmitted(Event, type="trainhouse.job.admitted.v1"):
    """Intake let a job in: the scheduler of its pool owns it from here on."""

    job_id: JobId
    spec: JobSpec
    spec_sha256: ShortText
    submission_id: EventId
    submitted_at_ms: TimestampMs


class JobRejected(Event, type="trainhouse.job.rejected.v1"):
    """A submission, cancellation or change was refused; `reason` says to a person what to change."""

    job_id: JobId | None
    submission_id: EventId
    reason: CutText
    rejected_at_ms: TimestampMs
    project: ShortText = ""

    def subject(self) -> str:
        return str(self.job_id or self.submission_id)


class LastCheckpoint(Model):
    """The newest checkpoint that a restart would begin from."""

    commit: Count
    step: Count
    uri: LongText
    completed_at_ms: TimestampMs


class JobStatus(Event, type="trainhouse.job.status.v1"):
    """The whole current status of a job. Newer has the larger `status_seq`.

    `live_room` is in the journal alone: so many numbers, up to `status_seq`, are kept for statuses that only follow the job's progress and
    have no record; the status itself is published under the number before them.
    """

    job_id: JobId | None
    status_seq: Count
    state: JobState
    reason: CutText = ""
    submission_id: EventId | None = None
    name: ShortText = ""
    project: ShortText = ""
    purpose: ShortText = Field("", exclude_if=is_absent)
    team: ShortText = ""
    user: ShortText = ""
    pool: PoolName | None = None
    priority: int = Field(50, ge=0, le=100)
    spec_sha256: ShortText = ""
    attempt: AttemptNumber = AttemptNumber(0)
    epoch: Epoch = Epoch(0)
    restarts: SmallCount = 0
    world_size: SmallCount = 0
    allocation: tuple[NodePlacement, ...] = Field((), max_length=MOST_ITEMS)
    step: Count | None = None
    total_steps: Count | None = None
    loss: Metric | None = None
    learning_rate: Metric | None = None
    steps_per_s: Metric | None = None
    samples_per_s: Metric | None = None
    elapsed_s: ComputedS | None = None
    eta_s: ComputedS | None = None
    last_checkpoint: LastCheckpoint | None = None
    submitted_at_ms: TimestampMs | None = None
    allocated_at_ms: TimestampMs | None = None
    running_at_ms: TimestampMs | None = None
    finished_at_ms: TimestampMs | None = None
    updated_at_ms: TimestampMs = 0
    live_room: Count | None = Field(None, exclude_if=is_absent)

    @property
    def public_seq(self) -> int:
        """The number that it is published under."""
        return self.status_seq - (self.live_room or 0)

    def subject(self) -> str:
        return str(self.job_id or self.submission_id)
