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
    index: SmallCount = Field(description="number of the device on its node, from 0")
    type: ShortText = Field(description="type of the device, such as nvidia-h200, or cpu")
    memory_bytes: ByteCount = Field(0, description="memory of the device in bytes; 0: not known")
    nvlink_peers: tuple[DeviceId, ...] = Field((), max_length=MOST_DEVICES, description="devices that it reaches over NVLink")
    ecc_enabled: bool | None = Field(None, description="whether its memory corrects errors; none: not known")


class AttemptRef(Model):
    """One attempt of one job, with its fence."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch


class IsolationLayer(Model):
    """One layer that confines jobs on a node: whether it is there, and why not, or what of it lacks."""

    name: ShortText = Field(description="name of the layer")
    on: bool = Field(description="whether it is in force")
    reason: CutText = Field("", description="why it is not, or what it lacks")


class NodeIsolation(Model):
    """Job isolation of a node. `complete`: none sees or touches what is not its own; else `reason`. `mode`: required, preferred, none."""

    mode: ShortText = Field(description="what the agent's settings ask for: required, preferred or none")
    complete: bool = Field(description="whether no job sees or touches what is not its own")
    reason: CutText = Field("", description="what is missing")
    layers: tuple[IsolationLayer, ...] = Field((), max_length=32, description="layers that confine jobs")


class NodeRegistered(Event, type="trainhouse.node.registered.v1"):
    """An agent is up: this is its node, and what still runs there. `incarnation` names this start of the agent."""

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    address: ShortText = Field(description="address at which ranks on other nodes reach this one's")
    devices: tuple[Device, ...] = Field(max_length=MOST_DEVICES, description="devices of the node")
    rendezvous_ports: tuple[Port, ...] = Field(max_length=MOST_ITEMS, description="ports that rank 0 of a gang may use on it")
    cpus: CpuCount = Field(0, description="cores of the node")
    memory_bytes: ByteCount = Field(0, description="main memory of the node, in bytes")
    labels: dict[ShortText, LongText] = Field(
        default_factory=dict, max_length=MOST_LABELS, description="labels of the node, topology domains among them"
    )
    running: tuple[AttemptRef, ...] = Field((), max_length=MOST_ITEMS, description="attempts that still run there")
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

    pulse_at_ms: TimestampMs | None = Field(
        None, description="time of the last sign of life of the rank's session, in milliseconds since 1970"
    )
    activity: RankActivity | None = Field(None, description="what the session says it does")
    activity_since_ms: TimestampMs | None = Field(None, description="since when, in milliseconds since 1970")
    activity_limit_s: MaybeS = Field(None, description="seconds for which it was announced")
    step_time_p99_ms: MaybeMs = Field(None, description="99th percentile of the rank's step times, in milliseconds")
    longest_step_ms: MaybeMs = Field(None, description="longest step, in milliseconds")
    work_time_ms: MaybeMs = Field(None, description="time of a step without waiting for other ranks, in milliseconds")
    fastest_work_time_ms: MaybeMs = Field(None, description="the same of the fastest rank of the gang, in milliseconds")


class RankHeartbeat(RankLife):
    """One rank: its process and its progress. `step_at_ms` is when the last step was seen; waits are totals of the attempt.

    `pulse_at_ms` is the last sign of life of the rank's session, steps or not: a stopped process has none. `work_time_ms` is what a step
    of this rank takes without waiting for other ranks, `fastest_work_time_ms` the same of the fastest rank of the gang.
    """

    rank: SmallCount
    device_id: DeviceId
    pid: SmallCount | None = Field(description="id of the process; none before it starts")
    state: RankState = Field(description="state of the process")
    step: Count | None = None
    step_at_ms: TimestampMs | None = Field(None, description="time at which the last step was seen, in milliseconds since 1970")
    step_time_ms: ComputedMs | None = Field(None, description="time of a step, in milliseconds")
    data_wait_s: ReportedS = Field(0.0, description="seconds that the attempt has waited for data so far")
    save_stall_s: ReportedS = Field(0.0, description="seconds that saves have held training up so far")


class AttemptHeartbeat(Model):
    """The ranks of one attempt on one node."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    ranks: tuple[RankHeartbeat, ...] = Field(max_length=MOST_ITEMS, description="its ranks on the node")


class DeviceHealth(Model):
    """Health of one device, as its driver reports it; a field is None where it reports nothing."""

    device_id: DeviceId
    utilization_pct: Reading | None = Field(None, description="share of time in which it worked, in per cent")
    memory_used_bytes: ComputedCount | None = Field(None, description="memory in use, in bytes")
    temperature_c: Reading | None = Field(None, description="temperature in degrees Celsius")
    power_w: Reading | None = Field(None, description="power draw in watts")
    sm_clock_mhz: Reading | None = Field(None, description="clock of its multiprocessors, in megahertz")
    max_sm_clock_mhz: Reading | None = Field(None, description="highest clock that it can have, in megahertz")
    ecc_corrected: ComputedCount | None = Field(None, description="corrected memory errors, counted by the driver")
    ecc_uncorrected: ComputedCount | None = Field(None, description="uncorrected memory errors, counted by the driver")
    throttled: bool | None = Field(None, description="whether heat or power holds its clock down")


class NodeHeartbeat(Event, type="trainhouse.node.heartbeat.v1"):
    """A node is alive, with each rank's progress and each device's health. `sequence` counts within an incarnation."""

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    sequence: Count = Field(description="number of the heartbeat within the incarnation")
    at_ms: TimestampMs
    interval_s: IntervalS = Field(description="seconds to the next one")
    attempts: tuple[AttemptHeartbeat, ...] = Field((), max_length=MOST_ITEMS, description="attempts with ranks on the node")
    devices: tuple[DeviceHealth, ...] = Field((), max_length=MOST_DEVICES, description="health of each device")
    spool_lag_bytes: ByteCount = Field(0, description="bytes of points and reports that wait to be shipped")


class NodeSuspected(Event, type="trainhouse.node.suspected.v1"):
    """A node has been silent for longer than its rhythm explains. Nothing is taken from it yet.

    `suspicion` is phi: -log10 of the chance that a heartbeat of this node comes so late. `sequence`: its last heartbeat.
    """

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    silent_s: ComputedS = Field(description="seconds since its last heartbeat")
    suspicion: ComputedRatio = Field(description="phi: -log10 of the probability that a heartbeat of this node comes so late")
    at_ms: TimestampMs
    incarnation: ShortText = ""
    sequence: Count | None = Field(None, description="number of its last heartbeat")


class NodeLost(Event, type="trainhouse.node.lost.v1"):
    """A node is given up: its gangs restart elsewhere, its devices stay unallocatable until it registers again.

    `sequence`: its last heartbeat.
    """

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    silent_s: ComputedS = Field(description="seconds since its last heartbeat")
    evidence: CutText = Field(description="what the verdict rests on, for a person")
    at_ms: TimestampMs
    sequence: Count | None = Field(None, description="number of its last heartbeat")


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
    deadline_ms: DueMs = Field(description="time at which the node goes away, in milliseconds since 1970")
    at_ms: TimestampMs


class NodeProbeAsked(Event, type="trainhouse.node.probe-asked.v1"):
    """A node in quarantine, or with closed devices, is asked for a self test. `probe` counts those of one closing, 1 being the first."""

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    probe: SmallCount = Field(ge=1, description="number of the self test since the node was closed, from 1")
    at_ms: TimestampMs
    devices: tuple[DeviceId, ...] = Field(
        (), max_length=MOST_DEVICES, description="try these alone, the node is in use; none: the whole node"
    )


class ProbeCheck(Model):
    """One check of a self test."""

    name: str = Field(max_length=64, description="name of the check")
    passed: bool = Field(description="whether it passed")
    found: str = Field("", max_length=1024, description="what was measured or seen")


class NodeProbed(Event, type="trainhouse.node.probed.v1"):
    """Result of a node's self test."""

    node_id: NodeId
    boot_id: ShortText
    pool: PoolName
    probe: SmallCount = Field(ge=1, description="number of the self test since the node was closed, from 1")
    passed: bool = Field(description="whether all checks passed")
    checks: tuple[ProbeCheck, ...] = Field((), max_length=64, description="the checks, one by one")
    at_ms: TimestampMs


class NodeKeyed(Event, type="trainhouse.node.keyed.v1"):
    """This public key speaks for the node from here on; empty: the next one that it registers with does."""

    node_id: NodeId
    pool: PoolName
    public_key: str = Field("", max_length=64, description="Ed25519 key in base64; empty: the next one that the node registers with counts")
    user: ShortText = ""
    reason: CutText = ""
    at_ms: TimestampMs

    def subject(self) -> str:
        return str(self.node_id)


class SignatureRefused(Event, type="trainhouse.signature.refused.v1"):
    """A record in a node's name (or a job's, or the platform's) was not signed as it must be; its bytes are a dead letter."""

    node_id: NodeId | None = Field(None, description="node in whose name it was, if in one's")
    claimed: str = Field(max_length=256, description="in whose name")
    reason: str = Field(max_length=2048)
    topic: ShortText = Field(description="topic of the record")
    partition: SmallCount = Field(description="its partition")
    offset: Count = Field(description="its offset")
    at_ms: TimestampMs
