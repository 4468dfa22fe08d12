"""Transition of a job when its attempt has left all devices: it ends, or waits for its next attempt.

Holds: a failure is blamed before anything follows from it. A gang that made way, or failed through no fault of its own, waits for no pause
unless it got nowhere twice in a row; its restart costs nothing.
Never: frees a device.
"""

from dataclasses import dataclass
from typing import Final

from trainhouse.events import AttemptNumber, FailureBlamed, LossDiverged, OnDivergence, SkippedData
from trainhouse.events.model.decisions import JobRequeued
from trainhouse.events.model.phases import Allotment, Cancelled, Failed, Pending, StopCause, StopKind, UnderReview
from trainhouse.events.wire.rank_end import one_line
from trainhouse.scheduler.core.attempts.attribution import blame_attempt, end_summary
from trainhouse.scheduler.core.attempts.data_skips import positions_text, why_not_skipped
from trainhouse.scheduler.core.attempts.job_outputs import OUTPUTS_SINCE, all_clean, may_succeed, succeed
from trainhouse.scheduler.core.attempts.node_trust import hold_against
from trainhouse.scheduler.core.attempts.restart_budget import FREE, Cost, backoff_ms, cost_of, streak_of
from trainhouse.scheduler.core.attempts.restart_nodes import has_all, let_go, to_avoid, to_prefer
from trainhouse.scheduler.core.attempts.rollback import BEGINNING, bound_after_divergence, last_good
from trainhouse.scheduler.core.state.draft import MAX_REASON_CHARS, Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.transitions import check_move

_FINISHED: Final = (StopKind.LOST, StopKind.HUNG, StopKind.REVIEW, StopKind.RUN_TIME)
"""Causes for which an attempt that had finished is not done again."""


@dataclass(frozen=True, slots=True)
class _Next:
    """Continuation of a job. `failed`: something went wrong, so the next nodes matter. `rolls_back`: its loss diverged. `skips`: data
    that are left out from here on, beside those of before."""

    reason: str
    cost: Cost = FREE
    failed: bool = False
    rolls_back: bool = False
    restore_at_most: int | None = None
    blamed: FailureBlamed | None = None
    skips: tuple[SkippedData, ...] = ()


def conclude(draft: Draft, job: Job, allotment: Allotment, cause: StopCause) -> None:
    """The attempt of a job that was stopped, or left, is over on all of its nodes."""
    kind = cause.kind
    if job.awaits_answers:
        succeed(draft, job)
    elif kind is StopKind.CANCELLED:
        draft.move(job.job_id, Cancelled(), cause.reason)
    elif kind is StopKind.RUN_TIME and not (all_clean(allotment) and job.outputs is not None):
        unsealed = all_clean(allotment) and not may_succeed(job) and draft.level >= OUTPUTS_SINCE
        late = "; every rank exited with code 0, but its outputs were not sealed in time" if unsealed else ""
        draft.move(job.job_id, Failed(), f"{cause.reason}{late}.{_kept(job)}")
    elif all_clean(allotment) and may_succeed(job) and (kind in _FINISHED or kind.makes_way):
        succeed(draft, job)
    elif kind is StopKind.REVIEW:
        _to_review(draft, job, allotment, cause)
    elif allotment.evidence.diverged is not None:
        _diverged(draft, job, allotment, cause)
    elif kind.makes_way:
        _requeue(draft, job, allotment, _Next(f"waits again: {cause.reason}", restore_at_most=job.restore_at_most))
    else:
        _failed(draft, job, allotment, cause)


def _failed(draft: Draft, job: Job, allotment: Allotment, cause: StopCause) -> None:
    rules = draft.state.book.policy(job.pool).failures
    blamed = blame_attempt(draft, job, allotment, cause.reason)
    job = draft.state.job(job.job_id)
    if blamed is not None and not _unexplained(allotment, cause):
        hold_against(draft, job, allotment, blamed)
    cost = cost_of(job, allotment, cause.kind, blamed, rules)
    summary = end_summary(allotment, blamed, cause.reason)
    if cost.over:
        shown = f" Its ranks' Python stacks: trainhouse stack {job.job_id} --attempt {job.attempt}." if cause.kind is StopKind.HUNG else ""
        draft.move(job.job_id, Failed(), f"{summary}. {cost.over}{shown}{_kept(job)}")
    else:
        then = _Next(f"restarting: {summary}.", cost, failed=True, restore_at_most=job.restore_at_most, blamed=blamed)
        _requeue(draft, job, allotment, then)


def _unexplained(allotment: Allotment, cause: StopCause) -> bool:
    """Ranks that were killed from outside, or whose exit is unknown: a node is suspect, but not blamed."""
    found = allotment.evidence
    return cause.kind is StopKind.LOST and found.lost_node is None and not found.launch_error


def _kept(job: Job) -> str:
    """Names the last checkpoint that remains of a failed job, as a sentence; empty if there is none."""
    last = job.last_checkpoint
    return f" Its last checkpoint is kept: commit {last.commit}, step {last.step}." if last is not None else ""


def _diverged(draft: Draft, job: Job, allotment: Allotment, cause: StopCause) -> None:
    """The loss is no number, or exploded: the job goes back, or ends, as its spec says."""
    divergence = allotment.evidence.diverged
    assert divergence is not None
    what = f"its loss diverged at step {divergence.step}: {divergence.loss}"
    blamed = blame_attempt(draft, job, allotment, what)
    job, rule = draft.state.job(job.job_id), job.spec.divergence
    skips = rule.action is OnDivergence.SKIP_DATA
    refusal = _why_over(job, divergence)
    if not refusal and (skips or rule.action is OnDivergence.ROLLBACK):
        bound = bound_after_divergence(job, allotment)
        where = "the beginning" if bound == BEGINNING else f"commit {bound}"
        data = divergence.data if skips else ()
        without = f" and leaves out {positions_text(data)}" if skips else ""
        _requeue(draft, job, allotment, _Next(f"goes back to {where}{without}: {what}", FREE, True, True, bound, blamed, data))
        return
    good = last_good(allotment)
    kept = "There is no checkpoint from before that." if good is None else f"Commit {good} is its last good checkpoint, and is kept."
    draft.move(job.job_id, Failed(), f"{what}.{refusal} {kept}")


def _why_over(job: Job, divergence: LossDiverged) -> str:
    """Reason for which a job does not go back, as a sentence behind a space; empty if its spec's action is the reason, or none is."""
    rule = job.spec.divergence
    if rule.action is OnDivergence.SKIP_DATA:
        refusal = why_not_skipped(job, divergence)
        return f" {refusal}" if refusal else ""
    times = job.tally.rollbacks
    return f" It went back {times} times, as often as divergence.rollbacks allows." if times >= rule.rollbacks else ""


def _to_review(draft: Draft, job: Job, allotment: Allotment, cause: StopCause) -> None:
    """Its attempt is over, at no cost; the next one begins where it would have begun without the review."""
    check_move(job.job_id, job.phase, UnderReview())
    diverged = allotment.evidence.diverged is not None
    draft.emit(
        JobRequeued(
            job_id=job.job_id,
            attempt=AttemptNumber(job.attempt + 1),
            tally=job.tally.model_copy(update={"ran_ms": job.ran_ms(draft.now_ms)}),
            not_before_ms=0,
            reason=cause.reason,
            restore_at_most=bound_after_divergence(job, allotment) if diverged else job.restore_at_most,
            skip_data=job.skip_data,
        )
    )
    draft.move(job.job_id, UnderReview(), cause.reason)


def _made_again(draft: Draft, job: Job, allotment: Allotment) -> str:
    """Names what the next attempt does not take over of this one's outputs, as a sentence; empty if there may be none."""
    if not job.spec.outputs or not allotment.started or draft.level < OUTPUTS_SINCE:
        return ""
    return f" Of outputs, samples that attempt {allotment.attempt} added without a piece's name are left out."


def _requeue(draft: Draft, job: Job, allotment: Allotment, then: _Next) -> None:
    ran_ms, limit_s = job.ran_ms(draft.now_ms), job.limits.run_time_s
    if limit_s is not None and ran_ms >= limit_s * 1000:
        reached = f"its run time reached limits.run_time_s = {limit_s:g}"
        draft.move(job.job_id, Failed(), f"{reached}; and then: {then.reason.rstrip('.')}.{_kept(job)}")
        return
    check_move(job.job_id, job.phase, Pending())
    recovery = draft.state.book.policy(job.pool).failures.recovery
    pauses = then.failed and not then.rolls_back
    streak = streak_of(job, draft.now_ms)
    wait_ms = backoff_ms(streak, recovery) if pauses else 0
    avoid = to_avoid(allotment, then.blamed) if then.failed else ()
    if then.failed and (wait_ms or avoid or not then.cost.free or not has_all(draft, job, allotment)):
        let_go(draft, job)
    counts = {"failures": then.cost.failures, "losses": then.cost.losses, "hangs": then.cost.hangs, "rollbacks": int(then.rolls_back)}
    tally = {name: getattr(job.tally, name) + more for name, more in counts.items()}
    draft.emit(
        JobRequeued(
            job_id=job.job_id,
            attempt=AttemptNumber(job.attempt + 1),
            tally=job.tally.model_copy(update=tally | {"streak": streak + pauses, "ran_ms": ran_ms}),
            not_before_ms=draft.now_ms + wait_ms,
            reason=one_line(then.reason + _made_again(draft, job, allotment), MAX_REASON_CHARS),
            prefer_nodes=to_prefer(draft, job, allotment, avoid) if then.failed else (),
            avoid_nodes=avoid,
            restore_at_most=then.restore_at_most,
            skip_data=(*job.skip_data, *then.skips),
        )
    )
    draft.publish(job.job_id)
