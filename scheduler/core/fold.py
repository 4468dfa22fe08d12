"""How each decision changes the state: the only place where it does.

Holds: a decision carries the new values, so folding needs no rule of the deciding side; an event that changes nothing is passed over.
Never: decides, or reads the inputs of a record.
"""

from bisect import insort
from collections.abc import Callable
from typing import Any

from trainhouse.events import Event, GangAllocated, JobStatus, PoolCreated, PoolName
from trainhouse.events.decisions import (
    CheckpointNoted,
    DevicesFreed,
    Hold,
    JobForgotten,
    JobMoved,
    JobProgressed,
    JobQueued,
    JobRequeued,
    JobRetuned,
    NodeGivenUp,
    NodeJoined,
    PartEnded,
    PartStarted,
    PlacementResumed,
    RankFinished,
    TokenSeen,
)
from trainhouse.events.journal import PlacementFrozen
from trainhouse.events.phases import Allotment, EndedPart, Pending, Running, Scheduled
from trainhouse.scheduler.core.records import Job, Node, NodeHealth
from trainhouse.scheduler.core.state import Freeze, Pool, ScheduleState

GIB = 1024**3


def fold_decision(state: ScheduleState, now_ms: int, decision: Event) -> None:
    """Applies one decision in place. Raises BrokenInvariant when it speaks of what is not there."""
    step = _STEPS.get(type(decision))
    if step is not None:
        step(state, now_ms, decision)


def _pool_created(state: ScheduleState, now_ms: int, d: PoolCreated) -> None:
    old = state.pools.get(d.pool)
    state.pools[d.pool] = Pool(d.pool, created=True, grown_at_ms=old.grown_at_ms if old else None)


def _token_seen(state: ScheduleState, now_ms: int, d: TokenSeen) -> None:
    state.tokens[d.partition] = (d.seq, d.ordinal)


def _queued(state: ScheduleState, now_ms: int, d: JobQueued) -> None:
    state.put_job(
        Job(
            job_id=d.job_id,
            number=d.number,
            spec=d.spec,
            spec_sha256=d.spec_sha256,
            submission_id=d.submission_id,
            submitted_at_ms=d.submitted_at_ms,
            priority=d.spec.priority,
            limits=d.spec.limits,
            reason=d.reason,
        )
    )
    state.next_number = d.number + 1


def _retuned(state: ScheduleState, now_ms: int, d: JobRetuned) -> None:
    _change(state, d.job_id, priority=d.priority, limits=d.limits)


def _moved(state: ScheduleState, now_ms: int, d: JobMoved) -> None:
    running = {"running_at_ms": d.phase.since_ms} if isinstance(d.phase, Running) else {}
    _change(state, d.job_id, phase=d.phase, reason=d.reason, **running)


def _requeued(state: ScheduleState, now_ms: int, d: JobRequeued) -> None:
    phase = Pending(not_before_ms=d.not_before_ms)
    _change(state, d.job_id, phase=phase, attempt=d.attempt, tally=d.tally, allotment=None, running_at_ms=None, reason=d.reason)


def _forgotten(state: ScheduleState, now_ms: int, d: JobForgotten) -> None:
    state.drop_job(d.job_id)


def _allocated(state: ScheduleState, now_ms: int, d: GangAllocated) -> None:
    allotment = Allotment(
        attempt=d.attempt,
        epoch=d.epoch,
        placements=d.placements,
        master_address=d.master_address,
        master_port=d.master_port,
        allocated_at_ms=now_ms,
    )
    _change(state, d.job_id, phase=Scheduled(), epoch=d.epoch, allotment=allotment, allocated_at_ms=now_ms, reason="")
    wanted = d.spec.resources
    for part in d.placements:
        ranks = len(part.devices)
        hold = Hold(
            job_id=d.job_id,
            epoch=d.epoch,
            devices=part.devices,
            cpus=ranks * (wanted.cpus_per_device or 0),
            memory_bytes=ranks * round((wanted.memory_gib_per_device or 0) * GIB),
        )
        node = state.node(part.node_id)
        holds = tuple(sorted((*node.holds, hold), key=lambda h: (h.job_id, h.epoch)))
        state.put_node(node.model_copy(update={"holds": holds}))


def _part_started(state: ScheduleState, now_ms: int, d: PartStarted) -> None:
    a = _allotment(state, d.job_id)
    _change(state, d.job_id, allotment=a.model_copy(update={"started": tuple(sorted({*a.started, d.node_id}))}))


def _rank_finished(state: ScheduleState, now_ms: int, d: RankFinished) -> None:
    a = _allotment(state, d.job_id)
    ranks = list(a.clean_ranks)
    insort(ranks, d.rank)
    _change(state, d.job_id, allotment=a.model_copy(update={"clean_ranks": tuple(ranks)}))


def _part_ended(state: ScheduleState, now_ms: int, d: PartEnded) -> None:
    a = _allotment(state, d.job_id)
    ended = sorted((*a.ended, EndedPart(node_id=d.node_id, how=d.how, at_ms=now_ms)), key=lambda e: e.node_id)
    _change(state, d.job_id, allotment=a.model_copy(update={"ended": tuple(ended)}))


def _freed(state: ScheduleState, now_ms: int, d: DevicesFreed) -> None:
    node = state.node(d.node_id)
    holds = tuple(h for h in node.holds if not (h.job_id == d.job_id and h.epoch == d.epoch))
    state.put_node(node.model_copy(update={"holds": holds}))


def _progressed(state: ScheduleState, now_ms: int, d: JobProgressed) -> None:
    _change(state, d.job_id, progress=d.progress)


def _checkpoint(state: ScheduleState, now_ms: int, d: CheckpointNoted) -> None:
    tally = state.job(d.job_id).tally.model_copy(update={"streak": 0})
    _change(state, d.job_id, last_checkpoint=d.checkpoint, tally=tally)


def _joined(state: ScheduleState, now_ms: int, d: NodeJoined) -> None:
    old = state.nodes.get(d.node_id)
    had = {x.device_id for x in old.devices} if old is not None and old.pool == d.pool else set()
    pool = state.pools.get(d.pool, Pool(PoolName(d.pool)))
    grown = now_ms if any(x.device_id not in had for x in d.devices) else pool.grown_at_ms
    state.pools[d.pool] = Pool(pool.name, pool.created, grown)
    state.put_node(Node(**{name: getattr(d, name) for name in NodeJoined.model_fields}))


def _given_up(state: ScheduleState, now_ms: int, d: NodeGivenUp) -> None:
    state.put_node(state.node(d.node_id).model_copy(update={"health": NodeHealth.LOST}))


def _frozen(state: ScheduleState, now_ms: int, d: PlacementFrozen) -> None:
    state.frozen = Freeze(d.reason, d.decide_version, now_ms)


def _resumed(state: ScheduleState, now_ms: int, d: PlacementResumed) -> None:
    state.frozen = None


def _status(state: ScheduleState, now_ms: int, d: JobStatus) -> None:
    if d.job_id in state.jobs:
        _change(state, str(d.job_id), status_seq=d.status_seq, status_at_ms=now_ms)


def _change(state: ScheduleState, job_id: str, **update: Any) -> None:
    state.put_job(state.job(job_id).model_copy(update=update))


def _allotment(state: ScheduleState, job_id: str) -> Allotment:
    found = state.job(job_id).allotment
    assert found is not None, f"job {job_id} has no gang; the journal speaks of one"
    return found


_STEPS: dict[type[Event], Callable[[ScheduleState, int, Any], None]] = {
    PoolCreated: _pool_created,
    TokenSeen: _token_seen,
    JobQueued: _queued,
    JobRetuned: _retuned,
    JobMoved: _moved,
    JobRequeued: _requeued,
    JobForgotten: _forgotten,
    GangAllocated: _allocated,
    PartStarted: _part_started,
    RankFinished: _rank_finished,
    PartEnded: _part_ended,
    DevicesFreed: _freed,
    JobProgressed: _progressed,
    CheckpointNoted: _checkpoint,
    NodeJoined: _joined,
    NodeGivenUp: _given_up,
    PlacementFrozen: _frozen,
    PlacementResumed: _resumed,
    JobStatus: _status,
}
