"""Actions of an agent.

Holds: plain frozen data, to be carried out in order.
"""

from dataclasses import dataclass

from trainhouse.events import CheckpointRequested, Event, GangAllocated, NodePlacement, NodeProbeAsked
from trainhouse.workers.agent.core.agent_state import AttemptKey


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this node's ranks; answer with LaunchDone or LaunchRefused."""

    allocation: GangAllocated
    placement: NodePlacement

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.allocation.job_id, int(self.allocation.epoch))


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to every rank."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class KillTree:
    """SIGKILL to every process of the attempt, children of ranks included."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class TakeStacks:
    """Keep the Python stacks of the ranks that are left, within `timeout_ms`; answer with StacksTaken."""

    key: AttemptKey
    ranks: tuple[int, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """Send to control, after all earlier reports. `stops` is set on an AttemptStopped: answer its ack with StopAcked."""

    event: Event
    event_id: str
    stops: AttemptKey | None = None


@dataclass(frozen=True, slots=True)
class AskCheckpoint:
    """Pass the request on to the ranks."""

    key: AttemptKey
    request: CheckpointRequested


@dataclass(frozen=True, slots=True)
class Sweep:
    """End whatever the ranks left behind; answer with Swept when no process of the attempt is left."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Drain:
    """Ship all that the ranks wrote; answer with Drained."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Seal:
    """Note that all ranks here exited with code 0; on the node of rank 0, make the outputs when all nodes have. Answer with Sealed."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing more will come of this attempt: mark its folder, so that no restart adopts it."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class Register:
    """Register again under a new incarnation: a verdict took this node's registration away."""

    reason: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Try the node's disk, memory, processors, devices and network; report NodeProbed."""

    request: NodeProbeAsked


@dataclass(frozen=True, slots=True)
class UploadOwnStates:
    """The gang is broken: put what this node's ranks have of their own where ranks that are left on other nodes find it."""

    key: AttemptKey


Action = (
    Launch | Terminate | KillTree | TakeStacks | Report | AskCheckpoint | Sweep | Drain | Seal | Finish | Register | Probe | UploadOwnStates
)
