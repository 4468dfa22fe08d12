"""State of an agent: the attempts on its node, each in one phase, and the fences that outlive them.

Holds: values are frozen; a phase is one of a union, never a bundle of flags. Fences are bounded in number: a forgotten one is still
covered by the order of commands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainhouse.events import GangAllocated, NodePlacement, Order
from trainhouse.workers.agent.core.termination_notice import Notice

MAX_FENCES = 4096


@dataclass(frozen=True, slots=True, order=True)
class AttemptKey:
    """One attempt of one job by its fence."""

    job_id: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.job_id}:{self.epoch}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of this agent: its node, this boot of it, this start of the agent."""

    node_id: str
    boot_id: str
    incarnation: str
    pool: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Reason and grace of an attempt's stop."""

    reason: str
    grace_ms: int
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Allocated; older attempts of the job, or holders of its devices, still have processes here."""


@dataclass(frozen=True, slots=True)
class Launching:
    """The launcher is at work; `stop` is what has been asked meanwhile."""

    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """Every rank had a process; `exited` in the attempt says which are gone."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """SIGTERM is sent; SIGKILL to the whole tree at `kill_at_ms`, and again while anything is left. `killed_at_ms`: the first of them.

    `grace_ms`: SIGTERM waits for stacks of its ranks, until `kill_at_ms` less this at most; None: it is sent.
    """

    reason: str
    kill_at_ms: int
    grace_ms: int | None = None
    killed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Sweeping:
    """Every rank is gone; what they left behind (children, the keeper) is being ended.

    `stop_ms`: it was asked to stop, and seals no longer than until then; None: it was not.
    """

    stop_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Draining:
    """No process is left; what the ranks wrote is being shipped, for so long at most. `stop_ms`: as in Sweeping."""

    until_ms: int
    stop_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Sealing:
    """All its ranks exited with code 0 and are drained: its outputs are sealed, until `until_ms` at most where it was asked to stop."""

    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Reporting:
    """AttemptStopped is on its way."""


Phase = Waiting | Launching | Running | Stopping | Sweeping | Draining | Sealing | Reporting


@dataclass(frozen=True, slots=True)
class LocalAttempt:
    """This node's part of one attempt. `talks`: its ranks have a session; `asked`: it was asked to save and leave; `broken`: a rank here
    did not exit with code 0."""

    allocation: GangAllocated
    placement: NodePlacement
    phase: Phase
    exited: frozenset[int] = frozenset()
    talks: bool = False
    asked: bool = False
    broken: bool = False

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.allocation.job_id, int(self.allocation.epoch))

    @property
    def has_processes(self) -> bool:
        """True if a process of it may be alive, so that nothing newer may start over it."""
        return isinstance(self.phase, Launching | Running | Stopping | Sweeping)

    @property
    def seals(self) -> bool:
        """Whether it has outputs, and all of its ranks here exited with code 0."""
        return bool(self.allocation.spec.outputs) and not self.broken and not self.ranks_left

    @property
    def ranks_left(self) -> frozenset[int]:
        return frozenset(self.placement.ranks) - self.exited


@dataclass(frozen=True, slots=True)
class Fence:
    """Of one job: the highest epoch ever seen, and the highest one that has ended here for good."""

    seen: int = -1
    ended: int = -1


@dataclass(frozen=True, slots=True)
class AgentState:
    """All of it. `order` is the high-water mark of commands per partition of the scheduler; `fences` are in order of last use.

    `notices`: what each source says of this node's end. `control`: the partition of control that the agent wrote to last, for this pool, on
    the brokers of `cluster` (their id).
    """

    identity: Identity
    attempts: Mapping[AttemptKey, LocalAttempt] = field(default_factory=dict)
    fences: Mapping[str, Fence] = field(default_factory=dict)
    order: Mapping[int, Order] = field(default_factory=dict)
    shutting_down: bool = False
    notices: Mapping[str, Notice] = field(default_factory=dict)
    max_fences: int = MAX_FENCES
    control: int | None = None
    cluster: str = ""

    @property
    def notice(self) -> Notice | None:
        """The one that counts: by which the node goes first. None: it stays."""
        return min(self.notices.values(), key=lambda n: n.deadline_ms, default=None)

    def fence(self, job_id: str) -> Fence:
        return self.fences.get(job_id, Fence())

    def with_fence(self, job_id: str, *, seen: int = -1, ended: int = -1) -> "AgentState":
        """Raises a job's fence; it never sinks. The least recently used ones beyond `max_fences` are dropped."""
        old = self.fence(job_id)
        new = Fence(max(old.seen, seen, ended), max(old.ended, ended))
        if new == old and job_id in self.fences:
            return self
        fences = {k: v for k, v in self.fences.items() if k != job_id} | {job_id: new}
        too_many = len(fences) - self.max_fences
        if too_many > 0:
            for extra in [k for k in fences if not any(a.job_id == k for a in self.attempts)][:too_many]:
                del fences[extra]
        return replace(self, fences=fences)

    def with_attempt(self, attempt: LocalAttempt) -> "AgentState":
        return replace(self, attempts={**self.attempts, attempt.key: attempt})

    def without_attempt(self, key: AttemptKey) -> "AgentState":
        return replace(self, attempts={k: v for k, v in self.attempts.items() if k != key})
