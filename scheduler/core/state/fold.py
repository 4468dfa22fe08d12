"""Fold of decisions into the state: the only place that changes it.

Holds: a decision carries the new values, so folding needs no rule of the deciding side; an event that changes nothing is passed over.
Never: decides, or reads the inputs of a record.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainhouse.events import Event, FailureBlamed, GangAllocated, JobReviewed, JobStatus, PoolCreated, ProjectLimited, ReviewAction
from trainhouse.events.model.bad_shard import BadShardNoted
from trainhouse.events.model.decisions import (
    CheckpointNoted,
    EvidenceFound,
    Hold,
    JobForgotten,
    JobMoved,
    JobProgressed,
    JobQueued,
    JobRequeued,
    JobRetuned,
    PartEnded,
    PartStarted,
    PlacementResumed,
    RankFinished,
    TokenSeen,
)
from trainhouse.events.model.evidence import MAX_DEGRADED, MAX_ENDS, MAX_PAST, JobFailure
from trainhouse.events.model.job_outputs import OutputAnswered, OutputsNoted, OutputsRequested
from trainhouse.events.model.phases import (
    Allotment,
    Cancelled,
    Checkpointing,
    EndedPart,
    Failed,
    Pending,
    Phase,
    Running,
    Scheduled,
    StopKind,
    Stopping,
    Succeeded,
    UnderReview,
)
from trainhouse.events.model.pool import (
    ChangeRefused,
    ClaimDropped,
    CycleRan,
    DevicesClaimed,
    NodeRestricted,
    PolicyApplied,
    PoolJudged,
    StartReserved,
    StartUnreserved,
)
from trainhouse.events.wire.journal import PlacementFrozen
from trainhouse.scheduler.core.queue.project_bounds import Bound
from trainhouse.scheduler.core.state.demand import device_share, host_needs, kin_of, shape_of
from trainhouse.scheduler.core.state.fold_moves import MOVE_STEPS
from trainhouse.scheduler.core.state.fold_nodes import NODE_STEPS
from trainhouse.scheduler.core.state.records import Job, JobOutputs
from trainhouse.scheduler.core.state.state import Freeze, ScheduleState

MAX_COMMITS = 32
"""Checkpoints of a job that are remembered by number: as far back as it can be sent."""
_REPORTED_ONCE = ("launch_error", "launch_node", "lost_node", "lost_incarnation", "hung", "diverged")

# What people ask for: after a freeze, placement is tried again.
_BY_PERSON = (JobQueued, JobRetuned, JobReviewed, PolicyApplied, NodeRestricted)


def fold_decision(state: ScheduleState, now_ms: int, decision: Event) -> None:
    """Applies one decision in place. Raises BrokenInvariant when it speaks of what is not there."""
    step = _STEPS.get(type(decision))
    if step is not None:
        step(state, now_ms, decision)
    if state.frozen is not None and not state.frozen.again and _asked_for(decision):
        state.frozen = replace(state.frozen, again=True)


def _asked_for(decision: Event) -> bool:
    if isinstance(decision, JobMoved):
        cause = _cause_of(decision.phase)
        return isinstance(decision.phase, Cancelled) or cause is StopKind.CANCELLED
    return isinstance(decision, _BY_PERSON)


def _pool_created(state: ScheduleState, now_ms: int, d: PoolCreated) -> None:
    state.pools[d.pool] = replace(state.pool(d.pool), created=True)


def _limited(state: ScheduleState, now_ms: int, d: ProjectLimited) -> None:
    state.book.bound(d.project, Bound(d.version, d.running, d.queued))


def _token_seen(state: ScheduleState, now_ms: int, d: TokenSeen) -> None:
    seen = state.scheduler_tokens if d.by_scheduler else state.tokens
    seen[d.partition] = (d.seq, d.ordinal)


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
            queued_at_ms=now_ms,
            waits_since_ms=now_ms,
            expected_ms=state.book.estimates.expected(kin_of(d.spec)),
        ),
        now_ms,
    )
    state.next_number = d.number + 1
    state.book.cluster.mix.seen(shape_of(d.spec))


def _retuned(state: ScheduleState, now_ms: int, d: JobRetuned) -> None:
    _change(state, now_ms, d.job_id, priority=d.priority, limits=d.limits)


def _moved(state: ScheduleState, now_ms: int, d: JobMoved) -> None:
    job = state.job(d.job_id)
    if _ended_by_itself(job.phase, d.phase):
        state.book.estimates.learn(kin_of(job.spec), job.ran_ms(now_ms))
    if _cause_of(d.phase) is StopKind.MOVED and _cause_of(job.phase) is not StopKind.MOVED:
        state.book.moved(now_ms)
    running = {"running_at_ms": d.phase.since_ms} if isinstance(d.phase, Running) else {}
    # What is under review waits for nothing that the scheduler could give.
    waits = {"waits_since_ms": now_ms} if isinstance(job.phase, UnderReview) and isinstance(d.phase, Pending) else {}
    _change(state, now_ms, d.job_id, phase=d.phase, reason=d.reason, **running, **waits)


def _ended_by_itself(old: Phase, new: Phase) -> bool:
    """Whether its run time predicts that of others like it: it ran to its own end, good or bad, and was not cut short."""
    return isinstance(new, Succeeded) or (isinstance(new, Failed) and _cause_of(old) is StopKind.RANK_FAILED)


def _cause_of(phase: Phase) -> StopKind | None:
    return phase.cause.kind if isinstance(phase, Checkpointing | Stopping) else None


def _requeued(state: ScheduleState, now_ms: int, d: JobRequeued) -> None:
    fields = {"phase": Pending(not_before_ms=d.not_before_ms), "attempt": d.attempt, "tally": d.tally, "reason": d.reason}
    fields |= {"prefer_nodes": d.prefer_nodes, "avoid_nodes": d.avoid_nodes, "restore_at_most": d.restore_at_most}
    if d.restore_at_most is not None:
        fields["commits"] = tuple(c for c in state.job(d.job_id).commits if c <= d.restore_at_most)
    expected_ms = state.book.estimates.expected(kin_of(state.job(d.job_id).spec), d.tally.ran_ms)
    fields |= {"bad_shards": (), "outputs": None, "skip_data": d.skip_data}
    _change(state, now_ms, d.job_id, **fields, allotment=None, running_at_ms=None, waits_since_ms=now_ms, expected_ms=expected_ms)


def _forgotten(state: ScheduleState, now_ms: int, d: JobForgotten) -> None:
    state.drop_job(d.job_id, now_ms)


def _allocated(state: ScheduleState, now_ms: int, d: GangAllocated) -> None:
    allotment = Allotment(
        attempt=d.attempt,
        epoch=d.epoch,
        placements=d.placements,
        master_address=d.master_address,
        master_port=d.master_port,
        allocated_at_ms=now_ms,
        restore_at_most=d.restore_at_most,
        accepted_bad=d.accepted_bad,
    )
    # Its holds come first: what the book says of a running job is where its devices are.
    for part in d.placements:
        cpus, memory_bytes = host_needs(d.spec, part.first_rank, len(part.devices))
        hold = Hold(
            job_id=d.job_id,
            epoch=d.epoch,
            devices=part.devices,
            cpus=cpus,
            memory_bytes=memory_bytes,
            device_share=device_share(d.spec),
        )
        node = state.node(part.node_id)
        holds = tuple(sorted((*node.holds, hold), key=lambda h: (h.job_id, h.epoch)))
        state.put_node(node.model_copy(update={"holds": holds}), now_ms)
    state.drop_claim(d.job_id)
    state.drop_reservation(d.job_id)
    ran_on = tuple(sorted({*state.job(d.job_id).ran_on, *(p.node_id for p in d.placements)}))
    begun = {"epoch": d.epoch, "allotment": allotment, "allocated_at_ms": now_ms, "ran_on": ran_on, "bad_samples": None}
    _change(state, now_ms, d.job_id, phase=Scheduled(), reason="", **begun)


def _part_started(state: ScheduleState, now_ms: int, d: PartStarted) -> None:
    a = _allotment(state, d.job_id)
    _change(state, now_ms, d.job_id, allotment=a.model_copy(update={"started": tuple(sorted({*a.started, d.node_id}))}))


def _rank_finished(state: ScheduleState, now_ms: int, d: RankFinished) -> None:
    a = _allotment(state, d.job_id)
    ranks = list(a.clean_ranks)
    insort(ranks, d.rank)
    _change(state, now_ms, d.job_id, allotment=a.model_copy(update={"clean_ranks": tuple(ranks)}))


def _part_ended(state: ScheduleState, now_ms: int, d: PartEnded) -> None:
    a = _allotment(state, d.job_id)
    ended = sorted((*a.ended, EndedPart(node_id=d.node_id, how=d.how, at_ms=now_ms)), key=lambda e: e.node_id)
    _change(state, now_ms, d.job_id, allotment=a.model_copy(update={"ended": tuple(ended)}))


def _progressed(state: ScheduleState, now_ms: int, d: JobProgressed) -> None:
    live = {} if d.live_seq is None else {"live_seq": d.live_seq}
    _change(state, now_ms, d.job_id, progress=d.progress, **live)


def _checkpoint(state: ScheduleState, now_ms: int, d: CheckpointNoted) -> None:
    job = state.job(d.job_id)
    fields = {"tally": job.tally.model_copy(update={"streak": 0, "hangs": 0}), "restore_at_most": d.restore_at_most}
    commits = (*job.commits, d.checkpoint.commit)[-MAX_COMMITS:]
    _change(state, now_ms, d.job_id, **fields, last_checkpoint=d.checkpoint, saved_at_ms=now_ms, commits=commits)


def _evidence(state: ScheduleState, now_ms: int, d: EvidenceFound) -> None:
    allotment = _allotment(state, d.job_id)
    old = allotment.evidence
    update: dict[str, Any] = {name: value for name in _REPORTED_ONCE if (value := getattr(d, name))}
    update["ends"] = (*old.ends, d.end)[:MAX_ENDS] if d.end is not None else old.ends
    update["degraded"] = (*old.degraded, d.degraded)[:MAX_DEGRADED] if d.degraded is not None else old.degraded
    if d.degraded is None and old.failed_at_ms is None:
        update["failed_at_ms"] = d.at_ms
    _change(state, now_ms, d.job_id, allotment=allotment.model_copy(update={"evidence": old.model_copy(update=update)}))


def _blamed(state: ScheduleState, now_ms: int, d: FailureBlamed) -> None:
    failure = JobFailure(at_ms=d.at_ms, category=d.category, fingerprint=d.fingerprint, node_id=d.node_id, mine=d.mine, hang=d.hang)
    _change(state, now_ms, d.job_id, past=(*state.job(d.job_id).past, failure)[-MAX_PAST:])


def _bad_shard(state: ScheduleState, now_ms: int, d: BadShardNoted) -> None:
    job = state.job(d.report.job_id)
    _change(state, now_ms, job.job_id, bad_shards=(*job.bad_shards, d.report.shard))


def _outputs_noted(state: ScheduleState, now_ms: int, d: OutputsNoted) -> None:
    _change(state, now_ms, d.report.job_id, outputs=JobOutputs(sealed=d.report))


def _outputs_requested(state: ScheduleState, now_ms: int, d: OutputsRequested) -> None:
    outputs = _outputs(state, d.job_id)
    since_ms = outputs.since_ms if outputs.requests else now_ms
    asked = {"requests": d.number, "since_ms": since_ms, "asked_at_ms": now_ms}
    _change(state, now_ms, d.job_id, outputs=outputs.model_copy(update=asked))


def _output_answered(state: ScheduleState, now_ms: int, d: OutputAnswered) -> None:
    outputs = _outputs(state, d.job_id)
    _change(state, now_ms, d.job_id, outputs=outputs.model_copy(update={"answers": (*outputs.answers, d)}))


def _outputs(state: ScheduleState, job_id: str) -> JobOutputs:
    found = state.job(job_id).outputs
    assert found is not None, f"job {job_id} has no outputs; the journal speaks of some"
    return found


def _reviewed(state: ScheduleState, now_ms: int, d: JobReviewed) -> None:
    """Letting a job go on accepts the bad samples for which it was sent to review, not those of an earlier one.

    Another limit replaces the spec's, so that each order of a gang carries it.
    """
    job = state.job(d.job_id)
    if d.action is ReviewAction.SEND:
        if job.bad_samples != d.bad_samples:
            _change(state, now_ms, d.job_id, bad_samples=d.bad_samples)
    elif d.action is ReviewAction.GO_ON and job.bad_samples is not None:
        _change(state, now_ms, d.job_id, bad_samples=None, accepted_bad=job.bad_samples)
    if d.max_bad is not None and job.spec.data is not None:
        data = job.spec.data.model_copy(update={"max_bad": d.max_bad})
        _change(state, now_ms, d.job_id, spec=job.spec.model_copy(update={"data": data}))


def _policy(state: ScheduleState, now_ms: int, d: PolicyApplied) -> None:
    state.put_policy(d.pool, d.policy, d.version, now_ms)


def _claimed(state: ScheduleState, now_ms: int, d: DevicesClaimed) -> None:
    state.put_claim(d)


def _claim_dropped(state: ScheduleState, now_ms: int, d: ClaimDropped) -> None:
    state.drop_claim(d.job_id)


def _reserved(state: ScheduleState, now_ms: int, d: StartReserved) -> None:
    state.put_reservation(d)


def _unreserved(state: ScheduleState, now_ms: int, d: StartUnreserved) -> None:
    state.drop_reservation(d.job_id)


def _refused(state: ScheduleState, now_ms: int, d: ChangeRefused) -> None:
    pass  # It changes nothing; that is what it says.


def _cycle_ran(state: ScheduleState, now_ms: int, d: CycleRan) -> None:
    state.book.marks.settle(d.pool, now_ms)
    state.book.lanes.of(d.pool).wake(now_ms)


def _judged(state: ScheduleState, now_ms: int, d: PoolJudged) -> None:
    state.pools[d.pool] = replace(state.pool(d.pool), judged=True)


def _frozen(state: ScheduleState, now_ms: int, d: PlacementFrozen) -> None:
    state.frozen = Freeze(d.reason, d.decide_version, now_ms)


def _resumed(state: ScheduleState, now_ms: int, d: PlacementResumed) -> None:
    state.frozen = None


def _status(state: ScheduleState, now_ms: int, d: JobStatus) -> None:
    if d.job_id in state.jobs:
        live_seq = None if d.live_room is None else d.public_seq
        _change(state, now_ms, str(d.job_id), status_seq=d.status_seq, status_at_ms=now_ms, live_seq=live_seq)


def _change(state: ScheduleState, now_ms: int, job_id: str, **update: Any) -> None:
    state.put_job(state.job(job_id).model_copy(update=update), now_ms)


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
    JobProgressed: _progressed,
    CheckpointNoted: _checkpoint,
    EvidenceFound: _evidence,
    FailureBlamed: _blamed,
    BadShardNoted: _bad_shard,
    OutputsNoted: _outputs_noted,
    OutputsRequested: _outputs_requested,
    OutputAnswered: _output_answered,
    JobReviewed: _reviewed,
    PolicyApplied: _policy,
    ProjectLimited: _limited,
    ChangeRefused: _refused,
    DevicesClaimed: _claimed,
    ClaimDropped: _claim_dropped,
    StartReserved: _reserved,
    StartUnreserved: _unreserved,
    CycleRan: _cycle_ran,
    PoolJudged: _judged,
    PlacementFrozen: _frozen,
    PlacementResumed: _resumed,
    JobStatus: _status,
    **NODE_STEPS,
    **MOVE_STEPS,
}
