"""Events about nodes: registration, heartbeats, verdicts.

Holds: a heartbeat and a verdict name the boot they speak of, so that an old one is never held against a new boot.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import (
    MOST_DEVICES,
    MOST_ITEMS,
    MOST_LABELS,
    ByteCount,
    ComputedCount,
    ComputedMs,
    ComputedRatio,
    ComputedS,
    Count,
    CpuCount,
    CutText,
    DueMs,
    IntervalS,
    LongText,
    MaybeMs,
    MaybeS,
    Port,
    Reading,
    ReportedS,
    ShortText,
    SmallCount,
    TimestampMs,
)
from trainhouse.events.model.ids import AttemptNumber, DeviceId, Epoch, JobId, NodeId, PoolName


class Device(Model):
    """An accelerator or a cpu slot. `memory_bytes` is 0 where it is not known."""

    device_id: DeviceId
    index: SmallCount
    type: ShortText
    memory_bytes: ByteCount = 0
    nvlink_peers: tuple[DeviceId, ...] = Field((), max_length=MOST_DEVICES)
    ecc_enabled: bool | None = None


class AttemptRef(Model):
    """One attempt of one job, with its fence."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch


class IsolationLayer(Model):
    """One layer that confines jobs on a node: whether it is there, and why not, or what of it lacks."""

    name: ShortText
    on: bool
    reason: CutText = ""


class NodeIsolation(Model):
    """Job isolation of a node. `complete`: none sees or touches what is not its own; else `reason`. `mode`: required, preferred, none."""

    mode: ShortText
    complete: bool
    reason: CutText = ""
    layers: tuple[IsolationLayer, ...] = Field((), max_length=32)


class NodeRegistered(Event, type="trainhouse.node.registered.v1"):
    """An agent is up: this is its node, and what still runs there. `incarnation` names this start of the agent."""

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    address: ShortText
    devices: tuple[Device, ...] = Field(max_length=MOST_DEVICES)
    rendezvous_ports: tuple[Port, ...] = Field(max_length=MOST_ITEMS)
    cpus: CpuCount = 0
    memory_bytes: ByteCount = 0
    labels: dict[ShortText, LongText] = Field(default_factory=dict, max_length=MOST_LABELS)
    running: tuple[AttemptRef, ...] = Field((), max_length=MOST_ITEMS)
    public_key: str = Field("", max_length=64, description="Ed25519, in base64: what this node signs its reports with")
    isolation: NodeIsolation | None = Field(None, description="None: its agent does not say")


class RankState(StrEnum):
    """State of a rank's process, as its agent sees it."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"


class RankActivity(StrEnum):
    """Reported activity of a rank with a session. BUSY: something that makes no steps and was announced, such as an evaluation."""

    STARTING = "STARTING"
    STEPPING = "STEPPING"
    WAITING_FOR_DATA = "WAITING_FOR_DATA"
    SAVING = "SAVING"
    BUSY = "BUSY"
    DONE = "DONE"


class RankLife(Model):
    """Liveness of a rank's session, in its reports and so in its node's heartbeats (see there); None without a session."""

    pulse_at_ms: TimestampMs | None = None
    activity: RankActivity | None = None
    activity_since_ms: TimestampMs | None = None
    activity_limit_s: MaybeS = None
    step_time_p99_ms: MaybeMs = None
    longest_step_ms: MaybeMs = None
    work_time_ms: MaybeMs = None
    fastest_work_time_ms: MaybeMs = None


class RankHeartbeat(RankLife):
    """One rank: its process and its progress. `step_at_ms` is when the last step was seen; waits are totals of the attempt.

    `pulse_at_ms` is the last sign of life of the rank's session, steps or not: a stopped process has none. `work_time_ms` is what a step
    of this rank takes without waiting for other ranks, `fastest_work_time_ms` the same of the fastest rank of the gang.
    """

    rank: SmallCount
    device_id: DeviceId
    pid: SmallCount | None
    state: RankState
    step: Count | None = None
    step_at_ms: TimestampMs | None = None
    step_time_ms: ComputedMs | None = None
    data_wait_s: ReportedS = 0.0
    save_stall_s: ReportedS = 0.0


class AttemptHeartbeat(Model):
    """The ranks of one attempt on one node."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    ranks: tuple[RankHeartbeat, ...] = Field(max_length=MOST_ITEMS)


class DeviceHealth(Model):
    """Health of one device, as its driver reports it; a field is None where it reports nothing."""

    device_id: DeviceId
    utilization_pct: Reading | None = None
    memory_used_bytes: ComputedCount | None = None
    temperature_c: Reading | None = None
    power_w: Reading | None = None
    sm_clock_mhz: Reading | None = None
    max_sm_clock_mhz: Reading | None = None
    ecc_corrected: ComputedCount | None = None
    ecc_uncorrected: ComputedCount | None = None
    throttled: bool | None = None


class NodeHeartbeat(Event, type="trainhouse.node.heartbeat.v1"):
    """A node is alive, with each rank's progress and each device's health. `sequence` counts within an incarnation."""

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    sequence: Count
    at_ms: TimestampMs
    interval_s: IntervalS
    attempts: tuple[AttemptHeartbeat, ...] = Field((), max_length=MOST_ITEMS)
    devices: tuple[DeviceHealth, ...] = Field((), max_length=MOST_DEVICES)
    spool_lag_bytes: ByteCount = 0


class NodeSuspected(Event, type="trainhouse.node.suspected.v1"):
    """A node has been silent for longer than its rhythm explains. Nothing is taken from it yet.

    `suspicion` is phi: -log10 of the chance that a heartbeat of this node comes so late. `sequence`: its last heartbeat.
    """

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    silent_s: ComputedS
    suspicion: ComputedRatio
    at_ms: TimestampMs
    incarnation: ShortText = ""
    sequence: Count | None = None


class NodeLost(Event, type="trainhouse.node.lost.v1"):
    """A node is given up: its gangs restart elsewhere, its devices stay unallocatable until it registers again.

    `sequence`: its last heartbeat.
    """

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    silent_s: ComputedS
    evidence: CutText
    at_ms: TimestampMs
    sequence: Count | None = None


class NodeNoticed(Event, type="trainhouse.node.noticed.v1"):
    """An agent was told that its node goes away by `deadline_ms`: a spot notice, a planned drain, its own SIGTERM.

    Its gangs are to save and leave in time, and nothing new comes to it under this incarnation.
    """

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    source: str = Field(max_length=64, description="file, signal, sigterm, or the name of a cloud's metadata service")
    reason: str = Field("", max_length=1024)
    deadline_ms: DueMs
    at_ms: TimestampMs


class NodeProbeAsked(Event, type="trainhouse.node.probe-asked.v1"):
    """A node in quarantine, or with closed devices, is asked for a self test. `probe` counts those of one closing, 1 being the first."""

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    probe: SmallCount = Field(ge=1)
    at_ms: TimestampMs
    devices: tuple[DeviceId, ...] = Field(
        (), max_length=MOST_DEVICES, description="try these alone, the node is in use; none: the whole node"
    )


class ProbeCheck(Model):
    """One check of a self test."""

    name: str = Field(max_length=64)
    passed: bool
    found: str = Field("", max_length=1024)


class NodeProbed(Event, type="trainhouse.node.probed.v1"):
    """Result of a node's self test."""

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    probe: SmallCount = Field(ge=1)
    passed: bool
    checks: tuple[ProbeCheck, ...] = Field((), max_length=64)
    at_ms: TimestampMs


class NodeKeyed(Event, type="trainhouse.node.keyed.v1"):
    """This public key speaks for the node from here on; empty: the next one that it registers with does."""

    node_id: NodeId
    pool: PoolName
    public_key: str = Field("", max_length=64)
    user: ShortText = ""
    reason: CutText = ""
    at_ms: TimestampMs

    def subject(self) -> str:
        return str(self.node_id)


class SignatureRefused(Event, type="trainhouse.signature.refused.v1"):
    """A record in a node's name (or a job's, or the platform's) was not signed as it must be; its bytes are a dead letter."""

    node_id: NodeId | None = None
    claimed: str = Field(max_length=256, description="in whose name")
    reason: str = Field(max_length=2048)
    topic: ShortText
    partition: SmallCount
    offset: Count
    at_ms: TimestampMs
