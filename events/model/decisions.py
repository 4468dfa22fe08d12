"""Decisions of the scheduler, as the journal holds them: each event is the whole new value of its object.

Holds: folding these alone rebuilds the scheduler's state, whatever code decided them. The orders to agents (GangAllocated …) and the
statuses that a record publishes are decisions too, beside these.
Never: leaves the journal, but for projections and replay.
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.attempt import LossDiverged
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_DEVICES,
    MOST_ITEMS,
    MOST_LABELS,
    ByteCount,
    Count,
    CpuCount,
    CutText,
    DueMs,
    LongText,
    Port,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.evidence import MAX_LAST_WORDS, EndedRank, Trust
from trainhouse.events.model.ids import AttemptNumber, DeviceId, Epoch, EventId, JobId, NodeId, PoolName
from trainhouse.events.model.job import LastCheckpoint
from trainhouse.events.model.node import Device, NodeIsolation
from trainhouse.events.model.phases import PartEnd, Phase, Progress, Tally
from trainhouse.events.model.skipped_data import MOST_SKIPPED, SkippedData
from trainhouse.events.model.spec import JobSpec, Limits
from trainhouse.events.model.verdict import DeviceDegraded, GangHung


class TokenSeen(Event, type="trainhouse.decision.token-seen.v1"):
    """Effects of the directory's partition up to this order token are known here: repeats are dropped.

    `by_scheduler`: of the scheduler's partition, which handed a pool over.
    """

    partition: SmallCount = Field(description="partition of the journal whose effects are known")
    seq: Count = Field(description="number of the record in that journal")
    ordinal: Count = Field(description="number of the effect within that record")
    by_scheduler: bool = Field(
        False, exclude_if=is_no, description="true: of the scheduler's journal, which handed a pool over; false: of the directory's"
    )


class JobQueued(Event, type="trainhouse.decision.job-queued.v1"):
    """An admitted job entered its pool's queue. `number` is its place in the order of submission."""

    job_id: JobId
    number: Count = Field(description="order of arrival in the partition")
    spec: JobSpec
    spec_sha256: ShortText
    submission_id: EventId
    submitted_at_ms: TimestampMs = Field(description="time of the submission, in milliseconds since 1970")
    reason: CutText = ""


class JobRetuned(Event, type="trainhouse.decision.job-retuned.v1"):
    """A job's mutable settings changed."""

    job_id: JobId
    priority: int = Field(ge=0, le=100, description="0 is the highest, 100 the lowest")
    limits: Limits = Field(description="restarts, run time and grace time")


class JobMoved(Event, type="trainhouse.decision.job-moved.v1"):
    """A job is in another phase, for a reason that its user reads."""

    job_id: JobId
    phase: Phase = Field(description="phase of the job from here on")
    reason: CutText


class JobRequeued(Event, type="trainhouse.decision.job-requeued.v1"):
    """An attempt is over and the job waits for the next one.

    `prefer_nodes`: where its warm processes are; `avoid_nodes`: what its last failure is blamed on. `restore_at_most`: the next attempt
    begins from no newer commit than this one. `skip_data`: all that its loaders leave out from here on.
    """

    job_id: JobId
    attempt: AttemptNumber
    tally: Tally = Field(description="counts of the job so far")
    not_before_ms: DueMs = Field(description="earliest time of the next start, in milliseconds since 1970")
    reason: CutText
    prefer_nodes: tuple[NodeId, ...] = Field((), max_length=MOST_ITEMS, description="nodes to start on again")
    avoid_nodes: tuple[NodeId, ...] = Field((), max_length=MOST_ITEMS, description="nodes to start on only if no others fit")
    restore_at_most: Count | None = Field(None, description="number of the newest checkpoint that it may begin from; none: any")
    skip_data: tuple[SkippedData, ...] = Field(
        (), max_length=MOST_SKIPPED, exclude_if=is_absent, description="data that its loaders leave out"
    )


class JobForgotten(Event, type="trainhouse.decision.job-forgotten.v1"):
    """A finished job left the live state; its last status says how it ended."""

    job_id: JobId


class PartStarted(Event, type="trainhouse.decision.part-started.v1"):
    """Every rank of an attempt on one node has a process."""

    job_id: JobId
    epoch: Epoch
    node_id: NodeId


class RankFinished(Event, type="trainhouse.decision.rank-finished.v1"):
    """A rank exited with code 0."""

    job_id: JobId
    epoch: Epoch
    rank: SmallCount


class PartEnded(Event, type="trainhouse.decision.part-ended.v1"):
    """Nothing more is expected of an attempt on one node."""

    job_id: JobId
    epoch: Epoch
    node_id: NodeId
    how: PartEnd = Field(description="how the part of the gang on this node ended")


class DevicesFreed(Event, type="trainhouse.decision.devices-freed.v1"):
    """Nothing of an attempt is left on a node: its devices there can be given again."""

    node_id: NodeId
    job_id: JobId
    epoch: Epoch


class JobProgressed(Event, type="trainhouse.decision.job-progressed.v1"):
    """An attempt told where its training is.

    `live_seq`: statuses that its owner publishes without a record of their own are numbered from the next one on, as `JobStatus` says.
    """

    job_id: JobId
    progress: Progress = Field(description="newest progress")
    live_seq: Count | None = Field(None, exclude_if=is_absent, description="number of the newest status published without a record")


class CheckpointNoted(Event, type="trainhouse.decision.checkpoint-noted.v1"):
    """A newer checkpoint of a job exists. `restore_at_most`: the bound of what an attempt may begin from, if it still counts."""

    job_id: JobId
    checkpoint: LastCheckpoint = Field(description="checkpoint that a restart would begin from")
    restore_at_most: Count | None = Field(None, description="number of the newest checkpoint that a restart may begin from; none: any")


class EvidenceFound(Event, type="trainhouse.decision.evidence-found.v1"):
    """Something more is known of how an attempt failed: what is told here is added to what was known."""

    job_id: JobId
    epoch: Epoch
    at_ms: TimestampMs
    end: EndedRank | None = Field(None, description="rank that ended first")
    launch_error: str = Field("", max_length=MAX_LAST_WORDS, description="why the node could not start its ranks")
    launch_node: NodeId | None = Field(None, description="node that could not")
    lost_node: NodeId | None = Field(None, description="node that was lost")
    lost_incarnation: ShortText = Field("", description="start of its agent that was lost")
    hung: GangHung | None = Field(None, description="verdict that the gang hung")
    degraded: DeviceDegraded | None = Field(None, description="verdict on a device")
    diverged: LossDiverged | None = Field(None, description="report of a diverged loss")


class Hold(Model):
    """Devices of a node, and the cpus and memory beside them, that one attempt has until the node says it is gone.

    No devices: the node runs the attempt, but nobody here gave it any; nothing is placed on the node until it is gone.
    `device_share`: thousandths of its one device.
    """

    job_id: JobId
    epoch: Epoch
    devices: tuple[DeviceId, ...] = Field((), max_length=MOST_DEVICES, description="devices of the node that the attempt has")
    cpus: CpuCount = Field(0, description="cores that it has there")
    memory_bytes: ByteCount = Field(0, description="main memory that it has there, in bytes")
    device_share: int = Field(1000, ge=1, le=1000, description="thousandths of the one device; 1000: whole devices")


class NodeJoined(Event, type="trainhouse.decision.node-joined.v1"):
    """A node registered: this is all that is known of it, and what holds its devices.

    `relayed`: by way of the partition that its pool was on before.
    """

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    address: ShortText
    devices: tuple[Device, ...] = Field(max_length=MOST_DEVICES, description="devices of the node")
    rendezvous_ports: tuple[Port, ...] = Field(max_length=MOST_ITEMS, description="ports that rank 0 of a gang may use on it")
    cpus: CpuCount = Field(description="cores of the node")
    memory_bytes: ByteCount = Field(description="main memory of the node, in bytes")
    labels: dict[ShortText, LongText] = Field(
        default_factory=dict, max_length=MOST_LABELS, description="labels of the node, topology domains among them"
    )
    holds: tuple[Hold, ...] = Field((), max_length=MOST_ITEMS, description="devices of attempts that still run there")
    public_key: ShortText = Field("", description="key that speaks for the node; empty: none")
    isolation: NodeIsolation | None = Field(None, description="confinement of its jobs; none: not known")
    relayed: bool = Field(False, exclude_if=is_no, description="whether it came by way of the partition that its pool was on before")


class NodeGivenUp(Event, type="trainhouse.decision.node-given-up.v1"):
    """A lost node: its devices stay unallocatable until it registers again."""

    node_id: NodeId
    reason: CutText


class NodeForgotten(Event, type="trainhouse.decision.node-forgotten.v1"):
    """A node that was lost for long and that nothing names left the state; its place is given to the next new node.

    One of that name that registers later is a new node. `public_key`: the key stays bound to the name.
    """

    node_id: NodeId
    pool: PoolName
    boot_id: ShortText
    public_key: str = Field("", max_length=64, description="key that spoke for the node")
    lost_at_ms: DueMs = Field(description="time at which it was lost, in milliseconds since 1970")
    at_ms: DueMs


class TrustChanged(Event, type="trainhouse.decision.trust-changed.v1"):
    """All that is held against a node now."""

    node_id: NodeId
    trust: Trust = Field(description="blames, closed devices and self test of the node")
    reason: CutText = ""


class PlacementResumed(Event, type="trainhouse.decision.placement-resumed.v1"):
    """Placement works again after it was frozen."""

    decide_version: SmallCount = Field(description="version of decisions that places again")
