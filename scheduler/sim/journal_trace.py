"""From a history to what the simulator takes: the jobs, nodes and times out of service of one pool, from a moment on.

Holds: seconds count from that moment; nothing is younger than the journal's end. What had to be guessed is in `notes`.

A job's run time is its kept work: all attempts, but of one that the fleet took from it (a lost node, another job) only what its checkpoints
kept. A simulation makes its own losses.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.state.demand import kin_of, shape_of
from trainhouse.scheduler.core.state.supply import slots_of
from trainhouse.scheduler.sim.faults_file import merge
from trainhouse.scheduler.sim.history import End, History, Life, NodeLife
from trainhouse.scheduler.sim.types import Fault, JobRow, SimNode, TraceJob

MAX_NAMED = 5


@dataclass(slots=True)
class Recorded:
    """One pool's past. `carried`: jobs that were there before the moment; they take part, but their waits are not compared.

    `real`: what became of the jobs that are compared and had ended. `busy_gpu_s`, `open_gpu_s`, `lost_gpu_s`: of the real past.
    """

    pool: str
    policy: SchedulingPolicy
    jobs: list[TraceJob]
    carried: frozenset[str]
    nodes: tuple[SimNode, ...]
    faults: tuple[Fault, ...]
    real: list[JobRow]
    span_s: int
    busy_gpu_s: float
    open_gpu_s: float
    lost_gpu_s: float
    preemptions: int
    notes: list[str] = field(default_factory=list)


class NothingRecordedError(ValueError):
    """The journal says too little to simulate: no such pool, no job, no node."""


def recorded(history: History, pool: str | None = None, since_ms: int | None = None) -> Recorded:
    """The past of one pool (the only one, where none is named). Raises NothingRecordedError."""
    pool = _pool(history, pool)
    from_ms = max(history.first_ms, since_ms or 0)
    if from_ms > history.last_ms:
        raise NothingRecordedError("--since is later than the journal's last record; ask for an earlier time")
    notes: list[str] = []
    lives = [j for j in history.jobs.values() if j.spec.pool == pool and (j.end_ms is None or j.end_ms > from_ms)]
    nodes = [n for n in history.nodes.values() if n.node.pool == pool]
    ran = _left_out(lives, notes)
    if not ran or not nodes:
        raise NothingRecordedError(
            f"pool {pool} has {len(ran)} jobs that could be simulated and {len(nodes)} nodes in that time; nothing to do"
        )
    # Jobs that held devices come first: at the moment itself no other can take them.
    ran.sort(key=lambda j: (0, _held_from(j, from_ms), j.number) if _holds(j, from_ms) else (1, j.queued_ms, j.number))
    usual_ms = _usual_ms(ran, history.last_ms)
    jobs = [_job(j, from_ms, history.last_ms, usual_ms) for j in ran]
    _guesses(ran, usual_ms, notes)
    _closings(history, nodes, from_ms, notes)
    _limits(history, notes)
    carried = frozenset(j.job_id for j in ran if j.queued_ms < from_ms)
    if carried:
        notes.append(f"{len(carried):,} jobs were there already: they take part from the start, and are not compared")
    sim_nodes = tuple(_node(n) for n in nodes)
    return Recorded(
        pool=pool,
        policy=_policy(history, pool, from_ms, notes),
        jobs=jobs,
        carried=carried,
        nodes=sim_nodes,
        faults=tuple(merge([f for n in nodes for f in _faults(n, from_ms, history.last_ms)])),
        real=[_row(j, from_ms) for j in ran if j.end_ms is not None and j.job_id not in carried],
        span_s=_seconds(history.last_ms - from_ms),
        busy_gpu_s=sum(_busy_ms(j, from_ms, history.last_ms) for j in ran) / 1000,
        open_gpu_s=sum(_open_ms(n, from_ms, history.last_ms) * _devices(n) for n in nodes) / 1000,
        lost_gpu_s=sum(_lost_ms(j, from_ms, history.last_ms) for j in ran) / 1000,
        preemptions=sum(1 for j in ran for a in j.attempts if a.how is End.MADE_WAY and (a.end_ms or 0) > from_ms),
        notes=notes,
    )


def _pool(history: History, pool: str | None) -> str:
    pools = history.pools
    if pool is None and len(pools) == 1:
        return pools[0]
    if pool is None or pool not in pools:
        what = f"the journal knows no pool {pool!r}" if pool else "the journal knows several pools; name one with --pool"
        raise NothingRecordedError(f"{what}; there are {', '.join(pools) or 'none'}")
    return pool


def _left_out(lives: Sequence[Life], notes: list[str]) -> list[Life]:
    """The jobs that had devices, or still wait for some."""
    ran = [j for j in lives if j.attempts or j.end_ms is None]
    if len(ran) < len(lives):
        notes.append(f"left out {len(lives) - len(ran):,} jobs that were cancelled or refused before they had devices")
    return ran


def _guesses(lives: Sequence[Life], usual_ms: int, notes: list[str]) -> None:
    """Appends notes on the assumed run times of jobs that have not ended."""
    going = sum(1 for j in lives if j.end_ms is None and j.attempts)
    if going:
        notes.append(f"{going:,} jobs had not ended: they count as long as they had run, which is the least that it can be")
    waiting = sum(1 for j in lives if not j.attempts)
    if waiting:
        notes.append(f"{waiting:,} jobs never ran: their run time is their limit, or the median of the others, {usual_ms / 1000:,.0f} s")


def _closings(history: History, nodes: Sequence[NodeLife], from_ms: int, notes: list[str]) -> None:
    if history.cordons:
        notes.append(f"nodes were cordoned {history.cordons} times: the simulation leaves them open")
    late = sum(1 for n in nodes if n.joined_ms > from_ms)
    if late:
        notes.append(f"{late:,} of {len(nodes):,} nodes joined later: they are out of service until then")


def _limits(history: History, notes: list[str]) -> None:
    if history.limited:
        named = ", ".join(sorted(history.limited)[:MAX_NAMED])
        notes.append(f"limits.running of {len(history.limited):,} projects ({named}) may have held jobs back: no simulation has them")


def _policy(history: History, pool: str, from_ms: int, notes: list[str]) -> SchedulingPolicy:
    """The last one that was applied."""
    applied = history.policies.get(pool, [])
    changes = sum(1 for at_ms, _ in applied if at_ms > from_ms)
    if changes > 1 or (changes and len(applied) > changes):
        notes.append(f"the policy changed {changes} times: the last one is taken for all of the time")
    return applied[-1][1] if applied else SchedulingPolicy()


def _job(life: Life, from_ms: int, last_ms: int, usual_ms: int) -> TraceJob:
    """Returns the rest of a job at the moment, as a job of the trace."""
    spec = life.spec
    work_ms = life.work_ms(last_ms) - life.work_ms(from_ms)
    if not life.attempts:
        work_ms = round(life.limit_s * 1000) if life.limit_s is not None else usual_ms
    return TraceJob(
        job_id=life.job_id,
        tenant=str(spec.team),
        submit_s=_seconds(max(0, life.queued_ms - from_ms)),
        duration_s=max(1, -(-work_ms // 1000)),
        gpus=life.ranks,
        status=life.outcome,
        priority=life.priority,
        user=str(spec.user),
        limit_s=None if life.limit_s is None else max(1, round(life.limit_s)),
        shape=shape_of(spec),
        kin=kin_of(spec),
        preemptible=spec.preemptible,
    )


def _usual_ms(lives: Sequence[Life], last_ms: int) -> int:
    """The median run time of jobs that ended, for those of which nothing is known; a minute where none did."""
    known = sorted(j.work_ms(last_ms) for j in lives if j.end_ms is not None)
    return known[len(known) // 2] if known else 60_000


def _row(life: Life, from_ms: int) -> JobRow:
    """Returns the real outcome of a job that has ended."""
    end_ms = life.end_ms or 0
    return JobRow(
        job_id=life.job_id,
        tenant=str(life.spec.team),
        user=str(life.spec.user),
        gpus=life.ranks,
        submit_s=_seconds(life.queued_ms - from_ms),
        duration_s=max(1, -(-life.work_ms(end_ms) // 1000)),
        end_s=_seconds(end_ms - from_ms),
        wait_s=_seconds(life.wait_ms(end_ms)),
        jct_s=_seconds(end_ms - life.queued_ms),
        run_s=_seconds(sum(a.ran_ms(end_ms) for a in life.attempts)),
        attempts=len(life.attempts),
        preemptions=sum(1 for a in life.attempts if a.how is End.MADE_WAY),
        faults=sum(1 for a in life.attempts if a.how is End.LOST),
    )


def _node(life: NodeLife) -> SimNode:
    return SimNode(str(life.node.node_id), _devices(life), pool=str(life.node.pool), slots=slots_of(life.node))


def _faults(life: NodeLife, from_ms: int, last_ms: int) -> list[Fault]:
    """Returns the spans in which a node was out of service, in seconds since the moment."""
    spans = [(c.from_ms, c.to_ms) for c in life.closed]
    if life.joined_ms > from_ms:
        spans.append((from_ms, life.joined_ms))
    found = []
    for begin_ms, end_ms in spans:
        if end_ms is not None and end_ms <= from_ms:
            continue
        begin_s = _seconds(max(0, begin_ms - from_ms))
        until_s = None if end_ms is None else -(-(end_ms - from_ms) // 1000)
        if until_s is None or until_s > begin_s:
            found.append(Fault(begin_s, str(life.node.node_id), "recorded", until_s))
    return found


def _holds(life: Life, at_ms: int) -> bool:
    return any(a.start_ms < at_ms and (a.end_ms is None or a.end_ms > at_ms) for a in life.attempts)


def _held_from(life: Life, at_ms: int) -> int:
    return max(a.start_ms for a in life.attempts if a.start_ms < at_ms)


def _busy_ms(life: Life, from_ms: int, last_ms: int) -> int:
    return sum(a.ranks * (a.ran_ms(last_ms) - a.ran_ms(from_ms)) for a in life.attempts)


def _lost_ms(life: Life, from_ms: int, last_ms: int) -> int:
    """Device time whose work was not kept."""
    ended = [a for a in life.attempts if a.end_ms is not None and a.end_ms > from_ms]
    return sum(a.ranks * (a.ran_ms(last_ms) - a.worked_ms(last_ms)) for a in ended)


def _open_ms(life: NodeLife, from_ms: int, last_ms: int) -> int:
    closed = sum(max(0, min(c.to_ms or last_ms, last_ms) - max(c.from_ms, from_ms, life.joined_ms)) for c in life.closed)
    return max(0, last_ms - max(from_ms, life.joined_ms)) - closed


def _devices(life: NodeLife) -> int:
    return len(life.node.offered)


def _seconds(ms: int) -> int:
    return ms // 1000
