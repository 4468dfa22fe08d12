"""Input and output types of a simulation: jobs of a trace, nodes, faults, options; rows, segments and a timeline.

Holds: times are whole seconds of the trace's own zero, in everything that goes in and comes out.
Never: reads or writes a file (the command line's part does).
"""

from dataclasses import dataclass, field

from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.shape import Shape

ANY_TYPE = "gpu"
"""The device type of a node whose source names none."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `gpus`: the whole gang. `gpu_type`: "A|B" is either, "" any. `priority`: 0 is the highest, 100 the lowest.

    `gpu_milli` < 1000: a share of one device. `duration_s`: its run time on the whole gang, true and unknown to an honest scheduler.
    `min_gpus`: an elastic gang may run on as few (0: all or nothing), and then takes longer in proportion. `limit_s`: what its owner said.
    `shape`, `kin`: where a recorded job has more than these columns can hold; they then count instead of them.
    """

    job_id: str
    tenant: str
    submit_s: int
    duration_s: int
    gpus: int
    status: str = ""
    gpu_type: str = ""
    priority: int = 50
    gpu_milli: int = 1000
    cpu_milli: int = 0
    memory_mib: int = 0
    user: str = ""
    min_gpus: int = 0
    limit_s: int | None = None
    shape: Shape | None = None
    kin: tuple[str, ...] = ()
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class SimNode:
    """One node. `memory_gib` is that of each device (0: not known); `pool` counts only where jobs stay in their tenant's pool.

    `slots`: where a recorded node has more than these columns can hold; they then count instead (but for the index).
    """

    node_id: str
    gpus: int
    gpu_type: str = ""
    rack: str = ""
    switch: str = ""
    pool: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    memory_gib: int = 0
    pod: str = ""
    spot: bool = False
    slots: NodeSlots | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A node is out of service from `time_s` until `repaired_s` (None: for good). A node may have several open at once."""

    time_s: int
    node_id: str
    kind: str = ""
    repaired_s: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """`one_pool`: all nodes are one pool; else a job runs on the nodes whose `pool` is its tenant.

    `checkpoint_s`: how often a running gang saves, counted from its start; what a fault takes is the work since. `restart_s`: what each
    start after the first costs before work goes on. `save_s`: what saving before a preemption takes (the deadline, if that is shorter).
    `until_s`: stop there; jobs that have not ended have no end. `timeline_points`: at most so many; at least 2.
    """

    one_pool: bool = True
    checkpoint_s: int = 1800
    restart_s: int = 60
    save_s: int = 0
    until_s: int | None = None
    timeline_points: int = 2000
    segments: bool = True


@dataclass(slots=True)
class JobRow:
    """Outcome of one job. Without start or end (None): it never started, or never ended; `refused` then gives the reason.

    `wait_s`: all of its time in the queue, retries included; `run_s`: all of its time on devices; `jct_s`: end - submit.
    `lost_gpu_s`: device time whose work was lost or that went into restarts.
    """

    job_id: str
    tenant: str
    user: str
    gpus: int
    submit_s: int
    duration_s: int
    first_start_s: int | None = None
    end_s: int | None = None
    wait_s: int = 0
    jct_s: int | None = None
    run_s: int = 0
    attempts: int = 0
    preemptions: int = 0
    faults: int = 0
    lost_gpu_s: int = 0
    nodes: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A gang's devices on one node, from start to end: one bar of a Gantt chart. `devices`: bit mask of positions."""

    job_id: str
    node_id: str
    devices: int
    from_s: int
    to_s: int


@dataclass(frozen=True, slots=True)
class Point:
    """Means over [from_s, to_s): devices in use (shares count as such), devices in service, jobs waiting, devices that they ask for."""

    from_s: int
    to_s: int
    busy: float
    devices: float
    waiting: float
    asked: float


@dataclass(slots=True)
class SimResult:
    """The whole outcome. `busy_gpu_s` and `open_gpu_s` are exact integrals from the first submission to the last end.

    `lost_to_faults_gpu_s`: that part of `lost_gpu_s` which nodes that failed took, restarts after that included.
    """

    policy: str
    rows: list[JobRow]
    segments: list[Segment]
    timeline: list[Point]
    nodes: tuple[str, ...]
    first_s: int
    last_s: int
    busy_gpu_s: float
    open_gpu_s: float
    preemptions: int = 0
    moves: int = 0
    resizes: int = 0
    lost_gpu_s: int = 0
    cycles: int = 0
    wall_s: float = 0.0
    lost_to_faults_gpu_s: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def makespan_s(self) -> int:
        return self.last_s - self.first_s

    @property
    def utilization(self) -> float:
        return self.busy_gpu_s / self.open_gpu_s if self.open_gpu_s else 0.0
