"""Decisions of intake's directory, as its journal holds them: known jobs and pools, routes of requests, requests on hold.

Holds: folding these (with PoolCreated and JobRejected, which are decisions there too) rebuilds the directory.
Never: leaves the journal, but for replay and projections.
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.bad_shard import ShardQuarantined, ShardReleased
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, DueMs, LongText, ShortText, SmallCount
from trainhouse.events.model.dataset import DatasetVersionDeprecated, DatasetVersionPublished
from trainhouse.events.model.dataset_grant import DatasetGranted, DatasetGrantRevoked
from trainhouse.events.model.handover import MovePool
from trainhouse.events.model.ids import EventId, JobId, PoolName
from trainhouse.events.model.job import CancelJob, ChangeJob, JobAdmitted, ReviewJob
from trainhouse.events.model.pool import CordonNode, DrainNode, ForgetNodeKey, PolicyChanged, QuarantineNode, UncordonNode
from trainhouse.events.model.project import ProjectApplied, ProjectLimited

# What a person asks of a pool: its policy, or one of its nodes. Goes to the partition of the pool, and never waits.
PoolRequest = PolicyChanged | CordonNode | UncordonNode | DrainNode | QuarantineNode | ForgetNodeKey | MovePool


class EventSeen(Event, type="trainhouse.directory.event-seen.v1"):
    """An event was handled; `digest` (of its source and id) recognises a repeat, `origin` the same record read again.

    `made_at_ms`: the event's own time, where it changes something that a later event may change back. `project`: whose topic it came by.
    """

    digest: str = Field(max_length=16, pattern=r"^[0-9a-f]{16}$", description="hash of its source and id, by which a repeat is recognised")
    origin: ShortText = Field("", exclude_if=is_absent, description="place of its record, by which a second read is recognised")
    made_at_ms: DueMs | None = Field(None, exclude_if=is_absent, description="time that the event names, in milliseconds since 1970")
    project: ShortText | None = Field(None, exclude_if=is_absent)


class JobDirected(Event, type="trainhouse.directory.job-directed.v1"):
    """A job exists, for ever in this pool. `fingerprint` recognises its spec again and names the fields that differ."""

    pool: PoolName
    partition: SmallCount = Field(description="partition of control of its pool")
    fingerprint: LongText = Field(description="hashes by which its spec is recognised again, and the fields that differ")
    admission: JobAdmitted = Field(description="event that lets it in")


class JobsSettled(Event, type="trainhouse.directory.jobs-settled.v1"):
    """All jobs in the partition's table, so many, become its next immutable segment."""

    jobs: Count = Field(ge=1, description="how many jobs")


class ProjectNoted(Event, type="trainhouse.directory.project-noted.v1"):
    """A project is so, as the one partition of the directory that decides about it has said."""

    applied: ProjectApplied = Field(description="newest state of the project")


class DatasetNoted(Event, type="trainhouse.directory.dataset-noted.v1"):
    """A version, a shard of it or a grant is so (one of these), as the one partition of the directory that decides about it has said."""

    published: DatasetVersionPublished | None = Field(None, exclude_if=is_absent, description="version, if it was published")
    deprecated: DatasetVersionDeprecated | None = Field(None, exclude_if=is_absent, description="version, if it was deprecated")
    quarantined: ShardQuarantined | None = Field(None, exclude_if=is_absent, description="shard, if it was quarantined")
    released: ShardReleased | None = Field(None, exclude_if=is_absent, description="shard, if it was released")
    granted: DatasetGranted | None = Field(None, exclude_if=is_absent, description="grant, if one was given")
    revoked: DatasetGrantRevoked | None = Field(None, exclude_if=is_absent, description="grant, if one was revoked")


class ControlGrown(Event, type="trainhouse.directory.control-grown.v1"):
    """Control has so many partitions from now on: pools may be given the new ones, and limits of projects go there too."""

    partitions: int = Field(ge=1, le=1024, description="partitions of control from here on")


def _is_zero(value: object) -> bool:
    return value == 0


class LimitsForwarded(Event, type="trainhouse.directory.limits-forwarded.v1"):
    """A project's limits on running and waiting jobs go to every scheduler: to the partitions of control from `first_partition` on."""

    limited: ProjectLimited = Field(description="limits that were passed on")
    control_partitions: SmallCount = Field(ge=1, description="partitions of control")
    first_partition: SmallCount = Field(0, exclude_if=_is_zero, description="lowest partition that they go to")


class RequestForwarded(Event, type="trainhouse.directory.request-forwarded.v1"):
    """A request (exactly one of these) goes to the partition of its job's pool, or of the pool that it names.

    `pool`: that of the job, which the request itself does not name.
    """

    event_id: EventId
    partition: SmallCount = Field(description="partition of control that it went to")
    cancel: CancelJob | None = Field(None, description="request, if it is a cancellation")
    change: ChangeJob | None = Field(None, description="request, if it is a change of a job")
    policy: PolicyChanged | None = Field(None, description="request, if it is another policy")
    cordon: CordonNode | None = Field(None, description="request, if it is a cordon")
    uncordon: UncordonNode | None = Field(None, description="request, if it ends a restriction")
    drain: DrainNode | None = Field(None, description="request, if it is a drain")
    quarantine: QuarantineNode | None = Field(None, description="request, if it is a quarantine")
    forget_key: ForgetNodeKey | None = Field(None, description="request, if a node's key is to be forgotten")
    review: ReviewJob | None = Field(None, exclude_if=is_absent, description="request, if it is about a review")
    move: MovePool | None = Field(None, exclude_if=is_absent)
    pool: PoolName | None = Field(None, exclude_if=is_absent)


class RequestHeld(Event, type="trainhouse.directory.request-held.v1"):
    """A cancellation or change (one of both) waits for the submission that it overtook."""

    digest: ShortText = Field(description="hash of its content")
    event_id: EventId
    job_id: JobId
    project: ShortText | None = None
    cancel: CancelJob | None = Field(None, description="request, if it is a cancellation")
    change: ChangeJob | None = Field(None, description="request, if it is a change")


class RequestUnheld(Event, type="trainhouse.directory.request-unheld.v1"):
    """A request that was held is held no more: it was forwarded, or refused."""

    digest: ShortText = Field(description="hash of its content")
