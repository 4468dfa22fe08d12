"""Events about pools: what people ask of a policy or a node, and what the scheduler made of it.

Holds: a change counts only when PolicyApplied or NodeRestricted says so; a refusal names the event that it answers, and leaves all as it
was. A drained, cordoned or quarantined node stays closed until somebody opens it, however often it registers.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_DEVICES, MOST_ITEMS, CutText, DueMs, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import DeviceId, EventId, JobId, NodeId, PoolName
from trainhouse.events.model.policy import SchedulingPolicy

MAX_TEXT_CHARS = 100_000


class PolicyChanged(Event, type="trainhouse.policy.changed.v1", public_input=True):
    """Request to schedule a pool by another policy. `text` is the file as it was written, for people to read again."""

    pool: PoolName
    policy: SchedulingPolicy = Field(description="whole policy")
    text: str = Field("", max_length=MAX_TEXT_CHARS, description="file as it was written")
    user: str = Field("unknown", max_length=128)
    reason: str = Field("", max_length=1024)
    requested_by: RequestedBy | None = None


class CordonNode(Event, type="trainhouse.node.cordon.v1", public_input=True):
    """Request to place nothing new on a node; what runs there goes on."""

    pool: PoolName
    node_id: NodeId
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class UncordonNode(Event, type="trainhouse.node.uncordon.v1", public_input=True):
    """Request to use a node again, whatever it was closed for."""

    pool: PoolName
    node_id: NodeId
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class DrainNode(Event, type="trainhouse.node.drain.v1", public_input=True):
    """Request to empty a node: its gangs save and leave within `deadline_s`, and nothing new is placed on it."""

    pool: PoolName
    node_id: NodeId
    deadline_s: float = Field(120.0, ge=0, le=86_400, description="seconds that its gangs have to save")
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class QuarantineNode(Event, type="trainhouse.node.quarantine.v1", public_input=True):
    """Request to close a faulty node: nothing new is placed there, and its gangs are stopped at once and start elsewhere."""

    pool: PoolName
    node_id: NodeId
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class ForgetNodeKey(Event, type="trainhouse.node.forget-key.v1", public_input=True):
    """Request to accept the next key that a node registers with: its disk is new, or its key was stolen."""

    pool: PoolName
    node_id: NodeId
    reason: str = Field("", max_length=1024)
    user: str = Field("unknown", max_length=128)
    requested_by: RequestedBy | None = None


class PolicyApplied(Event, type="trainhouse.policy.applied.v1"):
    """This policy decides about a pool from here on. `version` counts the policies of the pool, 1 being the first."""

    pool: PoolName
    policy: SchedulingPolicy = Field(description="whole policy")
    text: str = Field("", max_length=MAX_TEXT_CHARS, description="file as it was written")
    version: SmallCount = Field(ge=1, description="number of the pool's policy, from 1")
    user: ShortText = "unknown"
    reason: CutText = ""
    applied_at_ms: TimestampMs = Field(description="time from which it counts, in milliseconds since 1970")


class ChangeRefused(Event, type="trainhouse.change.refused.v1"):
    """A change of a policy or a node was refused: `reason` says to a person what to do. All is as it was."""

    pool: PoolName
    event_id: EventId
    reason: CutText
    user: ShortText = "unknown"
    refused_at_ms: TimestampMs = Field(description="time of the refusal, in milliseconds since 1970")


class Restriction(StrEnum):
    """Restriction that a person put on a node."""

    NONE = "NONE"
    CORDONED = "CORDONED"
    DRAINING = "DRAINING"
    QUARANTINED = "QUARANTINED"


class NodeRestricted(Event, type="trainhouse.decision.node-restricted.v1"):
    """A node is closed to new gangs, or open again. `deadline_ms`: gangs of a draining node are gone by then."""

    node_id: NodeId
    pool: PoolName
    restriction: Restriction = Field(description="restriction from now on; NONE: the node is open")
    reason: CutText = ""
    by: ShortText = Field("unknown", description="who asked for it")
    at_ms: TimestampMs
    deadline_ms: DueMs | None = Field(None, description="time by which gangs of a draining node are gone, in milliseconds since 1970")


class StartReserved(Event, type="trainhouse.decision.start-reserved.v1"):
    """A waiting job holds a start time on these nodes: backfill leaves both alone. It replaces the one that was held."""

    job_id: JobId
    start_ms: DueMs = Field(description="promised start, in milliseconds since 1970")
    node_ids: tuple[NodeId, ...] = Field(max_length=MOST_ITEMS, description="nodes that are kept for it")
    made_at_ms: TimestampMs = Field(description="time of the promise, in milliseconds since 1970")


class StartUnreserved(Event, type="trainhouse.decision.start-unreserved.v1"):
    """A waiting job holds no start time any more."""

    job_id: JobId


class ClaimedPart(Model):
    """Devices of one node that a job waits for. `device_share`: thousandths of the one device."""

    node_id: NodeId
    devices: tuple[DeviceId, ...] = Field(min_length=1, max_length=MOST_DEVICES, description="devices of the node")
    device_share: int = Field(1000, ge=1, le=1000, description="thousandths of the one device; 1000: whole devices")


class DevicesClaimed(Event, type="trainhouse.decision.devices-claimed.v1"):
    """A job starts on these devices when all are free; `victims` were asked to leave them. Nobody else gets them."""

    job_id: JobId
    parts: tuple[ClaimedPart, ...] = Field(min_length=1, max_length=MOST_ITEMS, description="devices by node")
    victims: tuple[JobId, ...] = Field(max_length=MOST_ITEMS, description="jobs that were asked to leave them")
    made_at_ms: TimestampMs = Field(description="time of the claim, in milliseconds since 1970")


class ClaimDropped(Event, type="trainhouse.decision.claim-dropped.v1"):
    """A claim is over without a start: its job is gone, or a node of it is."""

    job_id: JobId


class CycleRan(Event, type="trainhouse.decision.cycle-ran.v1"):
    """All that was new for a pool has been looked at: until something changes, its next cycle need not look again so soon."""

    pool: PoolName


class PoolJudged(Event, type="trainhouse.decision.pool-judged.v1"):
    """A pool has had its nodes for a while: of its waiting jobs, those that it could never hold were refused."""

    pool: PoolName
