"""What happens because time went by, on a tick: limits of run time, saves that take too long, ends that nobody explained, self
tests of nodes.

Holds: a pass looks only at jobs with devices, and at nodes, whose time has come; what is due is handled in order of their ids.
"""

from trainhouse.events import NodePlacement
from trainhouse.events.phases import Checkpointing, Initializing, PartEnd, Running, StopCause, StopKind, Stopping
from trainhouse.scheduler.core import fleet, probes
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.due import EXIT_REPORT_MS, QUIET_START_MS
from trainhouse.scheduler.core.evidence import note_unexplained
from trainhouse.scheduler.core.leaving import ask_to_leave, unhurried_ms
from trainhouse.scheduler.core.life import REMIND_MS, release, stop
from trainhouse.scheduler.core.records import Job
from trainhouse.scheduler.core.reports import NO_PROGRESS


def on_tick(draft: Draft) -> None:
    """Handles everything that is due now."""
    now_ms = draft.now_ms
    due = sorted(job_id for job_id, at_ms in draft.state.active.items() if at_ms <= now_ms)
    for job_id in [j for j in due if _is_due(draft.state.jobs[j], now_ms)]:
        _handle(draft, draft.state.jobs[job_id])
    probes.on_due(draft)
    fleet.give_orders(draft)


def _is_due(job: Job, now_ms: int) -> bool:
    phase = job.phase
    if isinstance(phase, Stopping):
        return now_ms >= phase.remind_at_ms
    if isinstance(phase, Checkpointing):
        return now_ms >= phase.deadline_ms or _unexplained(job, now_ms) is not None
    quiet = isinstance(phase, Initializing) and now_ms - phase.since_ms >= QUIET_START_MS
    return quiet or _out_of_time(job, now_ms) or _unexplained(job, now_ms) is not None


def _handle(draft: Draft, job: Job) -> None:
    phase, now_ms = job.phase, draft.now_ms
    if isinstance(phase, Stopping):
        draft.move(job.job_id, phase.model_copy(update={"remind_at_ms": now_ms + REMIND_MS}), job.reason)
        release(draft, job)
    elif isinstance(phase, Checkpointing):
        stop(draft, job, phase.cause)
    elif (left := _unexplained(job, now_ms)) is not None:
        part, rank = left
        note_unexplained(draft, job, part, rank)
        reason = f"node {part.node_id} runs nothing of the attempt any more, and did not say how rank {rank} ended"
        stop(draft, draft.state.job(job.job_id), StopCause(kind=StopKind.LOST, reason=reason))
    elif _out_of_time(job, now_ms):
        _end_for_run_time(draft, job)
    else:
        draft.move(job.job_id, Running(since_ms=now_ms), NO_PROGRESS)


def _unexplained(job: Job, now_ms: int) -> tuple[NodePlacement, int] | None:
    """A node says that its part is over, and some time later still not how this rank ended: the attempt counts as lost."""
    a = job.allotment
    if a is None:
        return None
    for ended in a.ended:
        if ended.how is PartEnd.STOPPED and now_ms - ended.at_ms >= EXIT_REPORT_MS:
            part = next(p for p in a.placements if p.node_id == ended.node_id)
            left = [r for r in part.ranks if r not in a.clean_ranks]
            if left:
                return part, left[0]
    return None


def _out_of_time(job: Job, now_ms: int) -> bool:
    limit_s = job.limits.run_time_s
    return limit_s is not None and job.ran_ms(now_ms) >= limit_s * 1000


def _end_for_run_time(draft: Draft, job: Job) -> None:
    cause = StopCause(kind=StopKind.RUN_TIME, reason=f"its run time reached limits.run_time_s = {job.limits.run_time_s:g}")
    ask_to_leave(draft, job, cause, unhurried_ms(draft, job))
