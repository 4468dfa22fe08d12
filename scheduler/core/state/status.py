"""The whole current status of a job, as its user reads it.

Each status in the journal of a job that holds devices keeps LIVE_ROOM numbers for statuses that only follow its progress: their owner
publishes those without a record. They go out in portions of LIVE_STEP: a `JobProgressed` gives the next one, so that two owners of a
partition, whichever decided first, never use the same number, and what is published later has the larger one.
Holds: a status needs no other record to be understood; its numbers are finite or absent.
"""

import math
from typing import Final

from trainhouse.events import JobStatus
from trainhouse.events.model.phases import Checkpointing, Running, Stopping
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.transitions import state_of

LIVE_ROOM: Final = 100_000
LIVE_STEP: Final = 200
# The level from which statuses have numbers behind them; below it each status stands in the journal.
LIVE_SINCE: Final = 8
REGISTERS_SINCE: Final = 22
"""The level with which statuses name the model that a job registers. The directory admits such jobs once an update is finished, so it is
not asked for where a status is made."""


def status_of(job: Job, now_ms: int, *, live: bool = True) -> JobStatus:
    """The next status of a job, for the journal: the number under which it is published is one more than the last that is taken.

    `live`: whether numbers are kept behind it.
    """
    room = LIVE_ROOM if live and job.allotment is not None and isinstance(job.phase, Running | Checkpointing | Stopping) else None
    return _status(job, now_ms, job.status_seq + 1 + (room or 0), room)


def live_status_of(job: Job, now_ms: int, number: int) -> JobStatus:
    """A status for the topic alone, under a number that the journal keeps for those."""
    return _status(job, now_ms, number, None)


def next_live_seq(job: Job) -> int | None:
    """Returns the first number of the next portion of a job's live numbers; None: only another status in the journal gives one."""
    if job.live_seq is None or job.live_seq + 2 * LIVE_STEP > job.status_seq:
        return None
    return job.live_seq + LIVE_STEP


def _status(job: Job, now_ms: int, number: int, room: int | None) -> JobStatus:
    spec, allotment, progress = job.spec, job.allotment, job.progress
    state = state_of(job.phase)
    return JobStatus(
        job_id=job.job_id,
        status_seq=number,
        state=state,
        reason=job.reason,
        submission_id=job.submission_id,
        name=spec.name,
        project=spec.project,
        purpose=spec.purpose or "",
        team=spec.team,
        user=spec.user,
        pool=job.pool,
        priority=job.priority,
        spec_sha256=job.spec_sha256,
        attempt=job.attempt,
        epoch=job.epoch,
        restarts=job.tally.restarts,
        world_size=sum(len(p.devices) for p in allotment.placements) if allotment is not None else spec.gang.ranks,
        allocation=allotment.placements if allotment is not None and not state.final else (),
        step=progress.step if progress else None,
        total_steps=progress.total_steps if progress else None,
        loss=progress.loss if progress else None,
        learning_rate=progress.learning_rate if progress else None,
        steps_per_s=progress.steps_per_s if progress else None,
        samples_per_s=progress.samples_per_s if progress else None,
        elapsed_s=job.ran_ms(now_ms) / 1000 if job.allocated_at_ms is not None else None,
        eta_s=None if state.final else _eta_s(job),
        last_checkpoint=job.last_checkpoint,
        registers=spec.register,
        submitted_at_ms=job.submitted_at_ms,
        allocated_at_ms=job.allocated_at_ms,
        running_at_ms=job.running_at_ms,
        finished_at_ms=now_ms if state.final else None,
        updated_at_ms=now_ms,
        live_room=room,
    )


def _eta_s(job: Job) -> float | None:
    """Seconds until the last step at the present rate, None where that cannot be said."""
    p = job.progress
    if p is None or p.epoch != job.epoch or p.total_steps is None or p.steps_per_s is None:
        return None
    if not math.isfinite(p.steps_per_s) or p.steps_per_s <= 0:
        return None
    return round(max(0, p.total_steps - p.step) / p.steps_per_s, 1)
