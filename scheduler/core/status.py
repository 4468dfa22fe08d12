"""The whole current status of a job, as its user reads it.

Holds: a status needs no other record to be understood; its numbers are finite or absent.
"""

import math

from trainhouse.events import JobStatus
from trainhouse.scheduler.core.records import Job
from trainhouse.scheduler.core.transitions import state_of


def status_of(job: Job, now_ms: int) -> JobStatus:
    """The next status of a job: `status_seq` is one more than that of its last."""
    spec, allotment, progress = job.spec, job.allotment, job.progress
    state = state_of(job.phase)
    return JobStatus(
        job_id=job.job_id,
        status_seq=job.status_seq + 1,
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
        submitted_at_ms=job.submitted_at_ms,
        allocated_at_ms=job.allocated_at_ms,
        running_at_ms=job.running_at_ms,
        finished_at_ms=now_ms if state.final else None,
        updated_at_ms=now_ms,
    )


def _eta_s(job: Job) -> float | None:
    """Seconds until the last step at the present rate, None where that cannot be said."""
    p = job.progress
    if p is None or p.epoch != job.epoch or p.total_steps is None or p.steps_per_s is None:
        return None
    if not math.isfinite(p.steps_per_s) or p.steps_per_s <= 0:
        return None
    return round(max(0, p.total_steps - p.step) / p.steps_per_s, 1)
