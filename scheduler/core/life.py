"""The end of an attempt: release its gang, wait until every node says so, then retry or finish its job.

Holds: a job's next attempt is queued only when each node of the last one has said that nothing is left there, or was given up.
Never: frees a device (only its node can, see reports and fleet).
"""

from typing import Final

from trainhouse.events import AttemptNumber, GangReleased, JobState
from trainhouse.events.decisions import JobRequeued, PartEnded
from trainhouse.events.phases import Allotment, Cancelled, Checkpointing, Failed, PartEnd, Pending, StopCause, StopKind, Stopping, Succeeded
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.records import Job
from trainhouse.scheduler.core.transitions import check_move, state_of

MAX_LOSSES: Final = 100
REMIND_MS: Final = 20_000
FAILED_GRACE_S: Final = 2.0
BACKOFF_MS: Final = 500
MAX_BACKOFF_MS: Final = 30_000
LONG_ENOUGH_MS: Final = 60_000


def stop(draft: Draft, job: Job, cause: StopCause) -> None:
    """Releases the gang of a job that has one; one that is stopping already gets the new cause.

    What a save was for stands, whatever goes wrong while it lasts.
    """
    if isinstance(job.phase, Checkpointing) and cause.kind in (StopKind.LOST, StopKind.RANK_FAILED):
        cause = job.phase.cause
    asked = cause.kind in (StopKind.CANCELLED, StopKind.RUN_TIME) or cause.kind.makes_way
    grace_s = job.limits.grace_s if asked else min(job.limits.grace_s, FAILED_GRACE_S)
    remind_at_ms = draft.now_ms + round(grace_s * 1000) + REMIND_MS
    shown = JobState.PREEMPTED if cause.kind.makes_way else state_of(job.phase)
    phase = Stopping(shown=shown, cause=cause, grace_s=grace_s, remind_at_ms=remind_at_ms)
    draft.move(job.job_id, phase, cause.reason)
    release(draft, draft.state.job(job.job_id))
    settle(draft, job.job_id)


def release(draft: Draft, job: Job) -> None:
    """Tells the nodes of a stopping job to end its ranks; a repeat is harmless."""
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
        _conclude(draft, job, allotment, job.phase.cause)
    elif _all_clean(job, allotment):
        if isinstance(job.phase, Checkpointing):
            _conclude(draft, job, allotment, job.phase.cause)
        else:
            draft.move(job_id, Succeeded(), "every rank exited with code 0")


def _all_clean(job: Job, allotment: Allotment) -> bool:
    return len(allotment.clean_ranks) == sum(len(p.devices) for p in allotment.placements)


def _conclude(draft: Draft, job: Job, allotment: Allotment, cause: StopCause) -> None:
    if cause.kind is StopKind.CANCELLED:
        draft.move(job.job_id, Cancelled(), cause.reason)
    elif cause.kind in (StopKind.FATAL, StopKind.RUN_TIME):
        draft.move(job.job_id, Failed(), cause.reason)
    elif (cause.kind is StopKind.LOST or cause.kind.makes_way) and _all_clean(job, allotment):
        draft.move(job.job_id, Succeeded(), "every rank exited with code 0")
    elif cause.kind is StopKind.LOST and job.tally.losses >= MAX_LOSSES:
        draft.move(job.job_id, Failed(), f"{cause.reason}; given up after {MAX_LOSSES} losses that were not the job's fault")
    elif cause.kind is StopKind.RANK_FAILED and job.tally.failures >= job.limits.restarts:
        draft.move(job.job_id, Failed(), f"{cause.reason}{_exhausted(job.limits.restarts)}")
    else:
        _requeue(draft, job, cause)


def _exhausted(restarts: int) -> str:
    return "" if restarts == 0 else f"\nAll {restarts} restarts that limits.restarts allows are used."


def _requeue(draft: Draft, job: Job, cause: StopCause) -> None:
    ran_ms = job.ran_ms(draft.now_ms)
    limit_s = job.limits.run_time_s
    if limit_s is not None and ran_ms >= limit_s * 1000:
        draft.move(job.job_id, Failed(), f"its run time reached limits.run_time_s = {limit_s:g}; and then: {cause.reason}")
        return
    got_somewhere = ran_ms - job.tally.ran_ms >= LONG_ENOUGH_MS
    streak = 0 if got_somewhere else job.tally.streak
    kind = cause.kind
    check_move(job.job_id, job.phase, Pending())
    tally = job.tally.model_copy(
        update={
            "failures": job.tally.failures + (kind is StopKind.RANK_FAILED),
            "losses": job.tally.losses + (kind is StopKind.LOST),
            "streak": streak + (not kind.makes_way),
            "ran_ms": ran_ms,
        }
    )
    draft.emit(
        JobRequeued(
            job_id=job.job_id,
            attempt=AttemptNumber(job.attempt + 1),
            tally=tally,
            not_before_ms=draft.now_ms + (0 if kind.makes_way else backoff_ms(streak)),
            reason=f"{'waits again' if kind.makes_way else 'restarting'}: {cause.reason}",
        )
    )
    draft.publish(job.job_id)


def backoff_ms(streak: int) -> int:
    """The wait before a retry, after `streak` attempts in a row that got nowhere: none at first, then doubling up to a bound."""
    return 0 if streak == 0 else min(MAX_BACKOFF_MS, BACKOFF_MS * 2 ** min(streak - 1, 16))
