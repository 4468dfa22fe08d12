"""Events about jobs: what outsiders ask for, what intake makes of it, and the public status.

Holds: a JobStatus is the whole current status of a job; readers need no other record.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_ITEMS,
    ComputedCount,
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
from trainhouse.events.model.model_names import ModelName
from trainhouse.events.model.spec import JobSpec, Limits


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
    """Request to run a job. The same id with the same spec is the same job.

    `asked_as`: the role with which a gateway let `spec.user` in; absent: nobody vouches for that name.
    """

    job_id: JobId = Field(description="id of the job, chosen by whoever submits it; the same id is the same job for ever")
    spec: JobSpec
    asked_as: str | None = Field(
        None,
        max_length=32,
        exclude_if=is_absent,
        description="role with which a gateway let `spec.user` in; absent: nobody vouches for that name",
    )


class CancelJob(Event, type="trainhouse.job.cancel.v1", public_input=True):
    """Request to end a job now. It may overtake the submission."""

    job_id: JobId
    reason: str = Field("cancelled by its user", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class ChangeJob(Event, type="trainhouse.job.change.v1", public_input=True):
    """Request to change the priority or the limits of an admitted job."""

    job_id: JobId
    priority: int | None = Field(None, ge=0, le=100, description="0 is the highest, 100 the lowest; absent: stays")
    limits: Limits | None = Field(None, description="restarts, run time and grace time; absent: stay")
    requested_by: RequestedBy | None = None


class ReviewAction(StrEnum):
    """SEND: a job leaves its devices, or its queue, and is NEEDS_REVIEW. GO_ON: it is PENDING again. CANCEL: it is CANCELLED."""

    SEND = "send"
    GO_ON = "go_on"
    CANCEL = "cancel"


class ReviewJob(Event, type="trainhouse.job.review.v1", public_input=True):
    """A request to send a job to review, or to end its review."""

    job_id: JobId
    action: ReviewAction = Field(description="send to review, go on, or cancel")
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None
    max_bad: float | None = Field(
        None, ge=0, le=1, exclude_if=is_absent, description="with go_on: share of bad samples that replaces the spec's data.max_bad"
    )


class JobReviewed(Event, type="trainhouse.job.reviewed.v1"):
    """A job's scheduler obeyed a ReviewJob. `event_id`: the request's; `user` and `reason`: whose it was, and why."""

    job_id: JobId
    action: ReviewAction = Field(description="what was done")
    event_id: EventId = Field(description="id of the request")
    pool: PoolName
    user: CutText = Field(description="whose request it was")
    reason: CutText = ""
    at_ms: DueMs
    bad_samples: ComputedCount | None = Field(
        None, exclude_if=is_absent, description="bad samples of the job for which it was sent; letting it go on accepts so many"
    )
    max_bad: float | None = Field(
        None, ge=0, le=1, exclude_if=is_absent, description="share of bad samples that the job's next attempts allow; absent: as before"
    )


class PoolCreated(Event, type="trainhouse.pool.created.v1", public_input=True):
    """A pool exists and belongs to one partition of control, until it is moved."""

    pool: PoolName
    partition: int = Field(ge=0, lt=1024, description="partition of control that schedules it")
    requested_by: RequestedBy | None = None


class JobAdmitted(Event, type="trainhouse.job.admitted.v1"):
    """Intake let a job in: the scheduler of its pool owns it from here on."""

    job_id: JobId
    spec: JobSpec
    spec_sha256: ShortText
    submission_id: EventId
    submitted_at_ms: TimestampMs = Field(description="time of the submission, in milliseconds since 1970")


class JobRejected(Event, type="trainhouse.job.rejected.v1"):
    """A submission, cancellation or change was refused; `reason` says to a person what to change."""

    job_id: JobId | None
    submission_id: EventId = Field(description="id of the refused event")
    reason: CutText
    rejected_at_ms: TimestampMs = Field(description="time of the refusal, in milliseconds since 1970")
    project: ShortText = ""

    def subject(self) -> str:
        return str(self.job_id or self.submission_id)


class LastCheckpoint(Model):
    """The newest checkpoint that a restart would begin from."""

    commit: Count
    step: Count
    uri: LongText = Field(description="place of the checkpoint in the object store")
    completed_at_ms: TimestampMs = Field(description="time of its commit, in milliseconds since 1970")


class JobStatus(Event, type="trainhouse.job.status.v1"):
    """The whole current status of a job. Newer has the larger `status_seq`.

    `live_room` is in the journal alone: so many numbers, up to `status_seq`, are kept for statuses that only follow the job's progress and
    have no record; the status itself is published under the number before them.
    """

    job_id: JobId | None = Field(description="id of the job; none for a rejected event that named none")
    status_seq: Count = Field(description="number of the status; of two, the larger is newer")
    state: JobState = Field(description="state of the job")
    reason: CutText = ""
    submission_id: EventId | None = None
    name: ShortText = Field("", description="name of the job")
    project: ShortText = ""
    purpose: ShortText = Field("", exclude_if=is_absent, description="what the job is for")
    team: ShortText = Field("", description="owner of its quota")
    user: ShortText = ""
    pool: PoolName | None = None
    priority: int = Field(50, ge=0, le=100, description="0 is the highest, 100 the lowest")
    spec_sha256: ShortText = ""
    attempt: AttemptNumber = AttemptNumber(0)
    epoch: Epoch = Epoch(0)
    restarts: SmallCount = Field(0, description="restarts that counted towards `limits.restarts`")
    world_size: SmallCount = Field(0, description="ranks of the attempt")
    allocation: tuple[NodePlacement, ...] = Field((), max_length=MOST_ITEMS, description="nodes and devices of the attempt")
    step: Count | None = None
    total_steps: Count | None = Field(None, description="steps that its session aims at")
    loss: Metric | None = None
    learning_rate: Metric | None = None
    steps_per_s: Metric | None = None
    samples_per_s: Metric | None = None
    elapsed_s: ComputedS | None = Field(None, description="seconds for which it has had devices, all attempts together")
    eta_s: ComputedS | None = Field(None, description="expected seconds until the last step")
    last_checkpoint: LastCheckpoint | None = Field(None, description="checkpoint that a restart would begin from")
    registers: ModelName | None = Field(
        None, exclude_if=is_absent, description="model of which the last checkpoint becomes a version when the job succeeds"
    )
    submitted_at_ms: TimestampMs | None = Field(None, description="time of the submission, in milliseconds since 1970")
    allocated_at_ms: TimestampMs | None = Field(None, description="time at which the attempt got its devices, in milliseconds since 1970")
    running_at_ms: TimestampMs | None = Field(None, description="time of the first reported step, in milliseconds since 1970")
    finished_at_ms: TimestampMs | None = Field(None, description="time of the end, in milliseconds since 1970")
    updated_at_ms: TimestampMs = Field(0, description="time of this status, in milliseconds since 1970")
    live_room: Count | None = Field(
        None, exclude_if=is_absent, description="numbers up to `status_seq` kept for statuses without a record; in the journal alone"
    )

    @property
    def public_seq(self) -> int:
        """The number that it is published under; 0 for one that says more room than it has."""
        return max(0, self.status_seq - (self.live_room or 0))

    def subject(self) -> str:
        return str(self.job_id or self.submission_id)
