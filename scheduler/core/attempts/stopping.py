"""The end of an attempt: release its gang, and wait until every node says that nothing is left of it.

Holds: a job's next attempt is queued only when each node of the last one has said that nothing is left there, or was given up.
Never: frees a device (only its node can, see reports and fleet); says what becomes of the job (`conclude` does).
"""

from typing import Final

from trainhouse.events import GangReleased, JobState
from trainhouse.events.model.decisions import PartEnded
from trainhouse.events.model.phases import Checkpointing, PartEnd, StopCause, StopKind, Stopping
from trainhouse.scheduler.core.attempts.job_outputs import all_clean, end_while_waiting, succeed
from trainhouse.scheduler.core.attempts.outcome import conclude
from trainhouse.scheduler.core.attempts.restart_nodes import hold_on
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.transitions import state_of

REMIND_MS: Final = 20_000
FAILED_GRACE_S: Final = 2.0
HUNG_GRACE_S: Final = 0.5
"""Ranks that hang seldom handle SIGTERM; what they could still do in time is write down their stacks."""
_SUDDEN: Final = (StopKind.LOST, StopKind.RANK_FAILED, StopKind.HUNG)


def stop(draft: Draft, job: Job, cause: StopCause) -> None:
    """Releases the gang of a job that has one; one that is stopping already gets the new cause.

    What a save was for stands, whatever goes wrong while it lasts.
    """
    if job.awaits_answers:
        end_while_waiting(draft, job, cause)
        return
    hung = cause.kind is StopKind.HUNG
    if isinstance(job.phase, Checkpointing) and (cause.kind in _SUDDEN or cause.kind is StopKind.DIVERGED):
        cause = job.phase.cause
    grace_s = _grace_s(draft, job, StopKind.HUNG if hung else cause.kind)
    remind_at_ms = draft.now_ms + round(grace_s * 1000) + REMIND_MS
    shown = JobState.PREEMPTED if cause.kind.makes_way else state_of(job.phase)
    since_ms = job.phase.since_ms if isinstance(job.phase, Stopping) else draft.now_ms
    phase = Stopping(shown=shown, cause=cause, grace_s=grace_s, remind_at_ms=remind_at_ms, since_ms=since_ms)
    draft.move(job.job_id, phase, cause.reason)
    if cause.kind in _SUDDEN:
        hold_on(draft, draft.state.job(job.job_id))
    release(draft, draft.state.job(job.job_id))
    settle(draft, job.job_id)


def _grace_s(draft: Draft, job: Job, kind: StopKind) -> float:
    """As long as the spec says where the stop was requested; little where there is nothing left to wait for.

    A rank that can save for those that died takes the time that the policy gives for it; ranks with nothing to save are gone at once.
    """
    if _for_survivors(job, kind):
        return draft.state.book.policy(job.pool).failures.recovery.survivors_save_s
    if kind in (StopKind.CANCELLED, StopKind.RUN_TIME, StopKind.DIVERGED, StopKind.REVIEW) or kind.makes_way:
        return job.limits.grace_s
    return min(job.limits.grace_s, HUNG_GRACE_S if kind is StopKind.HUNG else FAILED_GRACE_S)


def _for_survivors(job: Job, kind: StopKind) -> bool:
    """Whether this end may be followed by a save of the ranks that are left."""
    progress = job.progress
    return kind is StopKind.RANK_FAILED and progress is not None and progress.epoch == job.epoch and bool(progress.saved_alone)


def release(draft: Draft, job: Job) -> None:
    """Orders the nodes of a stopping job to end its ranks; a repeat is harmless."""
    if job.allotment is None or not isinstance(job.phase, Stopping):
        return
    stopped = {e.node_id for e in job.allotment.ended if e.how is PartEnd.STOPPED}
    draft.emit(
        GangReleased(
            job_id=job.job_id,
            attempt=job.allotment.attempt,
            epoch=job.allotment.epoch,
            pool=job.pool,
            node_ids=tuple(p.node_id for p in job.allotment.placements if p.node_id not in stopped),
            reason=job.phase.cause.reason,
            grace_s=job.phase.grace_s,
            stacks=job.phase.cause.kind is StopKind.HUNG,
            for_survivors=_for_survivors(job, job.phase.cause.kind),
        )
    )


def end_part(draft: Draft, job: Job, node_id: str, how: PartEnd) -> None:
    """Nothing more is expected of a job's attempt on a node. A repeat does nothing."""
    allotment = job.allotment
    if allotment is None or any(e.node_id == node_id for e in allotment.ended):
        return
    part = next((p for p in allotment.placements if p.node_id == node_id), None)
    if part is not None:
        draft.emit(PartEnded(job_id=job.job_id, epoch=allotment.epoch, node_id=part.node_id, how=how))
        settle(draft, job.job_id)


def settle(draft: Draft, job_id: str) -> None:
    """Ends the attempt if every node's part has ended and it is known what that means for the job."""
    job = draft.state.job(job_id)
    allotment = job.allotment
    if allotment is None or len(allotment.ended) < len(allotment.placements):
        return
    if isinstance(job.phase, Stopping):
        conclude(draft, job, allotment, job.phase.cause)
    elif all_clean(allotment):
        if isinstance(job.phase, Checkpointing):
            conclude(draft, job, allotment, job.phase.cause)
        else:
            succeed(draft, job)
