"""State of the detector, all of it soft: if lost, it is rebuilt from the heartbeats.

Holds: bounded by what the heartbeats speak of: an attempt, rank or device that is no longer in them is forgotten, a node after a day of
silence.
"""

from dataclasses import dataclass, field

from trainhouse.events import NodeId, PoolName
from trainhouse.scheduler.core.detector.device import DeviceWatch
from trainhouse.scheduler.core.detector.hang import RankWatch
from trainhouse.scheduler.core.detector.heartbeat_stats import Rhythm
from trainhouse.scheduler.core.detector.hysteresis import Sustained
from trainhouse.scheduler.core.detector.open_verdicts import Stands
from trainhouse.scheduler.core.detector.silence import Liveness
from trainhouse.scheduler.core.detector.totals import Totals


@dataclass(slots=True)
class MemberWatch:
    """One rank: its progress, its work against that of the fastest, its waits."""

    progress: RankWatch = field(default_factory=RankWatch)
    slow: Sustained = field(default_factory=Sustained)
    waits: Totals = field(default_factory=Totals)


@dataclass(slots=True)
class AttemptWatch:
    """The ranks of one attempt on one node."""

    ranks: dict[int, MemberWatch] = field(default_factory=dict)


@dataclass(slots=True)
class NodeWatch:
    """A node. `received_at_ms` is on the clock of listening (`DetectorState.listened_ms`), `at_ms` on the node's own.

    `superseded`: the incarnation before this one; late heartbeats of that are no sign of life. `look_at_ms`: its silence changes nothing
    before, on the clock of listening.
    """

    node_id: NodeId
    boot_id: str
    incarnation: str
    pool: PoolName
    sequence: int
    at_ms: int
    interval_s: float
    received_at_ms: int
    look_at_ms: int = 0
    superseded: str = ""
    standing: Liveness = Liveness.ALIVE
    rhythm: Rhythm = field(default_factory=Rhythm)
    stands: dict[str, Stands] = field(default_factory=dict)
    attempts: dict[str, AttemptWatch] = field(default_factory=dict)
    devices: dict[str, DeviceWatch] = field(default_factory=dict)


@dataclass(slots=True)
class DetectorState:
    """All nodes that sent a heartbeat. `listened_ms` grows only while the detector reads; `ticked_at_ms` is None before the first tick.

    `recalled`: standing verdicts from before this detector began, on nodes without a heartbeat since.
    """

    nodes: dict[str, NodeWatch] = field(default_factory=dict)
    listened_ms: int = 0
    ticked_at_ms: int | None = None
    limits_version: int = 0
    recalled: dict[str, dict[str, Stands]] = field(default_factory=dict)
