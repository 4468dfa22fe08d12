"""Handling of deadlines on a tick: limits of run time, saves that take too long, unexplained exits, self
tests of nodes, nodes that are forgotten.

Holds: a pass looks only at jobs with devices, and at nodes, whose time has come; what is due is handled in order of their ids.
"""

from itertools import chain

from trainhouse.events import NodePlacement
from trainhouse.events.model.phases import Checkpointing, Initializing, PartEnd, Running, StopCause, StopKind, Stopping
from trainhouse.scheduler.core.attempts.eviction import ask_to_leave, unhurried_ms
from trainhouse.scheduler.core.attempts.evidence import note_unexplained
from trainhouse.scheduler.core.attempts.job_outputs import answers_are_due, on_answers_due, session_end
from trainhouse.scheduler.core.attempts.stopping import REMIND_MS, release, stop
from trainhouse.scheduler.core.handlers import handover, node_expiry, nodes, self_tests
from trainhouse.scheduler.core.handlers.reports import NO_PROGRESS
from trainhouse.scheduler.core.placement.feasibility import POOL_SETTLES_MS
from trainhouse.scheduler.core.placement.stage import RETRY_FROZEN_MS
from trainhouse.scheduler.core.state.deadlines import EXIT_REPORT_MS, NEVER_MS, quiet_until_ms
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState


def next_ms(state: ScheduleState, after_ms: int) -> int | None:
    """The next time after `after_ms` at which something is due that no look at a pool, every few seconds, would do in time."""
    lanes = state.book.lanes
    times = chain(
        state.active.values(),
        state.probing.values(),
        state.forgetting.values(),
        (held.start_ms for held in state.reservations.values()),
        (wake for pool in state.book.pools() if (wake := lanes.of(pool).next_wake_ms()) is not None),
        (pool.grown_at_ms + POOL_SETTLES_MS for pool in state.pools.values() if not pool.judged and pool.grown_at_ms is not None),
        (state.frozen.at_ms + RETRY_FROZEN_MS for _ in (0,) if state.frozen is not None),
    )
    return min((at_ms for at_ms in times if after_ms < at_ms < NEVER_MS), default=None)


def on_tick(draft: Draft) -> None:
    """Handles everything that is due now."""
    now_ms = draft.now_ms
    due = sorted(job_id for job_id, at_ms in draft.state.active.items() if at_ms <= now_ms)
    for job_id in [j for j in due if _is_due(draft.state.jobs[j], now_ms)]:
        _handle(draft, draft.state.jobs[job_id])
    self_tests.on_due(draft)
    nodes.give_orders(draft)
    node_expiry.on_due(draft)
    handover.close_due(draft)


def _is_due(job: Job, now_ms: int) -> bool:
    phase = job.phase
    if job.awaits_answers:
        return answers_are_due(job, now_ms)
    if isinstance(phase, Stopping):
        return now_ms >= phase.remind_at_ms
    if isinstance(phase, Checkpointing):
        return now_ms >= phase.deadline_ms or _unexplained(job, now_ms) is not None
    quiet = isinstance(phase, Initializing) and now_ms >= quiet_until_ms(phase)
    return quiet or _out_of_time(job, now_ms) or _unexplained(job, now_ms) is not None


def _handle(draft: Draft, job: Job) -> None:
    phase, now_ms = job.phase, draft.now_ms
    if job.awaits_answers:
        on_answers_due(draft, job)
    elif isinstance(phase, Stopping):
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
        draft.move(job.job_id, Running(since_ms=now_ms), session_end(job) or NO_PROGRESS)


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
