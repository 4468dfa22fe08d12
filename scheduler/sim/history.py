"""History read from a journal: each job's life, each node's times out of service, each pool's policies.

Holds: pure; read from decisions alone, in the order of their partition; times are the journal's clock, in milliseconds.
Never: decides anything again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from trainhouse.events import Event, GangAllocated, JobSpec, NodeRestricted, PolicyApplied, ProjectLimited, Restriction
from trainhouse.events.model.decisions import CheckpointNoted, JobMoved, JobQueued, JobRequeued, JobRetuned, NodeGivenUp, NodeJoined
from trainhouse.events.model.phases import Cancelled, Failed, Rejected, Succeeded, Tally
from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.state.records import Node

KINDS: tuple[type[Event], ...] = (
    *(JobQueued, JobRetuned, GangAllocated, JobRequeued, JobMoved, CheckpointNoted),
    *(NodeJoined, NodeGivenUp, NodeRestricted, PolicyApplied, ProjectLimited),
)
"""The decisions that a history is made of; a reader may leave all others unread."""
_FINAL = (Succeeded, Failed, Cancelled, Rejected)


@dataclass(frozen=True, slots=True)
class Happening:
    """One decision of a record that counts; without one it only marks how far the journal goes."""

    partition: int
    now_ms: int
    decision: Event | None


class End(StrEnum):
    """Outcome of an attempt. OPEN: it had not ended by the end of the journal."""

    OPEN = "OPEN"
    DONE = "DONE"
    OWN = "OWN"
    LOST = "LOST"
    MADE_WAY = "MADE_WAY"


@dataclass(slots=True)
class Attempt:
    """One time on devices. `saved_ms`: its newest checkpoint."""

    queued_ms: int
    start_ms: int
    ranks: int
    end_ms: int | None = None
    saved_ms: int | None = None
    how: End = End.OPEN

    def worked_ms(self, until_ms: int) -> int:
        """The time of it whose work was kept, as far as it went by then: a loss of the fleet's falls back to the last checkpoint."""
        end_ms = until_ms if self.end_ms is None else min(self.end_ms, until_ms)
        if self.how in (End.LOST, End.MADE_WAY) and self.end_ms is not None and self.end_ms <= until_ms:
            end_ms = self.start_ms if self.saved_ms is None else min(self.saved_ms, end_ms)
        return max(0, end_ms - self.start_ms)

    def ran_ms(self, until_ms: int) -> int:
        """All of its time on devices by then."""
        return max(0, (until_ms if self.end_ms is None else min(self.end_ms, until_ms)) - self.start_ms)


@dataclass(slots=True)
class Life:
    """One job. `end_ms` None: not ended by the end of the journal. `outcome`: the kind of its final phase."""

    job_id: str
    spec: JobSpec
    number: int
    priority: int
    queued_ms: int
    limit_s: float | None
    attempts: list[Attempt] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    waits_from_ms: int = 0
    end_ms: int | None = None
    outcome: str = ""

    @property
    def ranks(self) -> int:
        return self.spec.gang.ranks

    def wait_ms(self, until_ms: int) -> int:
        """All of its time in the queue by then, retries included."""
        waited = sum(min(a.start_ms, until_ms) - min(a.queued_ms, until_ms) for a in self.attempts)
        waiting = self.end_ms is None and (not self.attempts or self.attempts[-1].how is not End.OPEN)
        return waited + (max(0, until_ms - self.waits_from_ms) if waiting else 0)

    def work_ms(self, until_ms: int) -> int:
        """Its kept work by then, as run time of the whole gang."""
        return sum(a.worked_ms(until_ms) * a.ranks for a in self.attempts) // self.ranks


@dataclass(slots=True)
class Closed:
    """A time out of service; None: to the end of the journal."""

    from_ms: int
    to_ms: int | None = None


@dataclass(slots=True)
class NodeLife:
    """One node as it registered last, since when it has been there, and when it was out of service."""

    node: Node
    joined_ms: int
    closed: list[Closed] = field(default_factory=list)
    lost: bool = False
    restricted: bool = False


@dataclass(slots=True)
class History:
    """All of it. `policies`: (time, policy) for each pool, in order of time. `limited`: projects that once had a limit of running jobs."""

    first_ms: int = 0
    last_ms: int = 0
    jobs: dict[str, Life] = field(default_factory=dict)
    nodes: dict[str, NodeLife] = field(default_factory=dict)
    policies: dict[str, list[tuple[int, SchedulingPolicy]]] = field(default_factory=dict)
    cordons: int = 0
    limited: set[str] = field(default_factory=set)

    @property
    def pools(self) -> list[str]:
        """Every pool that jobs or nodes were of."""
        return sorted({str(j.spec.pool) for j in self.jobs.values()} | {str(n.node.pool) for n in self.nodes.values()})


def history_of(happenings: Iterable[Happening]) -> History:
    """Folds decisions into a history."""
    history = History()
    for happening in happenings:
        history.first_ms = min(history.first_ms or happening.now_ms, happening.now_ms)
        history.last_ms = max(history.last_ms, happening.now_ms)
        if happening.decision is not None:
            _of_job(history, happening.decision, happening.now_ms)
            _of_fleet(history, happening.decision, happening.now_ms)
    return history


def _of_job(history: History, decision: Event, now_ms: int) -> None:
    if isinstance(decision, JobQueued):
        spec = decision.spec
        life = Life(decision.job_id, spec, decision.number, spec.priority, now_ms, spec.limits.run_time_s, waits_from_ms=now_ms)
        history.jobs[decision.job_id] = life
        return
    known = history.jobs.get(getattr(decision, "job_id", ""))
    if known is None:
        return
    if isinstance(decision, JobRetuned):
        known.priority, known.limit_s = decision.priority, decision.limits.run_time_s
    elif isinstance(decision, GangAllocated):
        # A node that registers again gets its gang once more: that is no new attempt.
        if not known.attempts or known.attempts[-1].how is not End.OPEN:
            known.attempts.append(Attempt(known.waits_from_ms, now_ms, decision.world_size))
    elif isinstance(decision, CheckpointNoted):
        if known.attempts:
            known.attempts[-1].saved_ms = now_ms
    elif isinstance(decision, JobRequeued):
        _end_attempt(known, now_ms, _how(known.tally, decision.tally))
        known.tally, known.waits_from_ms = decision.tally, max(now_ms, decision.not_before_ms)
    elif isinstance(decision, JobMoved) and isinstance(decision.phase, _FINAL):
        _end_attempt(known, now_ms, End.DONE)
        known.end_ms, known.outcome = now_ms, decision.phase.kind


def _how(before: Tally, after: Tally) -> End:
    """Returns the cause of a requeue, by the counter that it raised."""
    return End.OWN if after.failures > before.failures else End.LOST if after.losses > before.losses else End.MADE_WAY


def _end_attempt(life: Life, now_ms: int, how: End) -> None:
    if life.attempts and life.attempts[-1].how is End.OPEN:
        life.attempts[-1].end_ms, life.attempts[-1].how = now_ms, how


def _of_fleet(history: History, decision: Event, now_ms: int) -> None:
    if isinstance(decision, PolicyApplied):
        history.policies.setdefault(decision.pool, []).append((now_ms, decision.policy))
    elif isinstance(decision, ProjectLimited):
        if decision.running is not None:
            history.limited.add(decision.project)
    elif isinstance(decision, NodeJoined):
        _joined(history, decision, now_ms)
    elif isinstance(decision, NodeGivenUp | NodeRestricted):
        life = history.nodes.get(decision.node_id)
        if life is None:
            return
        if isinstance(decision, NodeGivenUp):
            life.lost = True
        elif decision.restriction is Restriction.CORDONED:
            history.cordons += 1
        else:
            life.restricted = decision.restriction is not Restriction.NONE
        at_ms = max(now_ms, getattr(decision, "deadline_ms", None) or now_ms)
        _close_or_open(life, at_ms)


def _joined(history: History, joined: NodeJoined, now_ms: int) -> None:
    life = history.nodes.get(joined.node_id)
    index = len(history.nodes) if life is None else life.node.index
    node = Node(**{name: getattr(joined, name) for name in NodeJoined.model_fields if name != "holds"}, index=index)
    if life is None:
        history.nodes[joined.node_id] = NodeLife(node, now_ms)
        return
    life.node, life.lost = node, False
    _close_or_open(life, now_ms)


def _close_or_open(life: NodeLife, at_ms: int) -> None:
    """Begins or ends a time out of service."""
    is_closed = bool(life.closed) and life.closed[-1].to_ms is None
    if (life.lost or life.restricted) and not is_closed:
        life.closed.append(Closed(at_ms))
    elif not (life.lost or life.restricted) and is_closed:
        life.closed[-1].to_ms = max(at_ms, life.closed[-1].from_ms)
