"""Handling of people's requests: jobs, cancellations, changes, pools, as the directory forwards them.

Holds: each is handled once, however often it arrives: its order token shows whether it was seen.
"""

from trainhouse.events import CancelJob, ChangeJob, Envelope, JobAdmitted, PoolCreated, ProjectLimited
from trainhouse.events.model.decisions import JobQueued, JobRetuned, TokenSeen
from trainhouse.events.model.phases import Cancelled, Pending, Rejected, StopCause, StopKind, Stopping, UnderReview
from trainhouse.scheduler.core.attempts.stopping import stop
from trainhouse.scheduler.core.intake.passing_refusals import beyond_queue
from trainhouse.scheduler.core.placement.feasibility import refuse_at_submission
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job


def is_repeat(draft: Draft, envelope: Envelope) -> bool:
    """Whether the directory's effect was seen before; notes its token if not."""
    order = envelope.order
    if order is None:
        return False
    if (order.seq, order.ordinal) <= draft.state.tokens.get(order.partition, (-1, -1)):
        return True
    draft.emit(TokenSeen(partition=order.partition, seq=order.seq, ordinal=order.ordinal))
    return False


def on_admitted(draft: Draft, event: JobAdmitted) -> None:
    """Queues the job, or refuses it: its pool or its team's limit could never allow the gang, or too many of its project wait."""
    if event.job_id in draft.state.jobs:
        return
    draft.emit(
        JobQueued(
            job_id=event.job_id,
            number=draft.state.next_number,
            spec=event.spec,
            spec_sha256=event.spec_sha256,
            submission_id=event.submission_id,
            submitted_at_ms=event.submitted_at_ms,
            reason=f"queued in pool {event.spec.pool}",
        )
    )
    job = draft.state.job(event.job_id)
    if not refuse_at_submission(draft, job) and not refuse_beyond_queue(draft, job):
        draft.publish(event.job_id)


def refuse_beyond_queue(draft: Draft, job: Job) -> bool:
    """Rejects a job that came just now, where more of its project wait in the pool than may, also under review; True if it did."""
    book, project = draft.state.book, job.spec.project
    bound = book.bounds.of(project)
    reviewed = draft.state.reviewed.get((str(job.pool), str(project)), 0)
    if bound is None or bound.queued is None or book.lanes.of(job.pool).projects.get(project, 0) + reviewed <= bound.queued:
        return False
    reason = beyond_queue(str(project), str(job.pool), bound.queued, reviewed)
    draft.move(job.job_id, Rejected(), reason)
    return True


def on_limited(draft: Draft, event: ProjectLimited) -> None:
    """Notes how many jobs of a project may run and wait; what runs or waits beyond that stays."""
    if draft.state.book.bounds.version(event.project) < event.version:
        draft.emit(event)


def on_cancel(draft: Draft, event: CancelJob) -> None:
    """Ends the job; of one that is finished or unknown, nothing comes."""
    job = draft.live(event.job_id)
    if job is None:
        return
    reason = event.reason if event.user == "unknown" else f"{event.reason} (by {event.user})"
    if isinstance(job.phase, Pending | UnderReview):
        draft.move(job.job_id, Cancelled(), reason)
    elif not (isinstance(job.phase, Stopping) and job.phase.cause.kind in (StopKind.CANCELLED, StopKind.FATAL, StopKind.RUN_TIME)):
        stop(draft, job, StopCause(kind=StopKind.CANCELLED, reason=reason))


def on_change(draft: Draft, event: ChangeJob) -> None:
    """Changes priority or limits of a job that is not finished."""
    job = draft.live(event.job_id)
    if job is None:
        return
    priority = job.priority if event.priority is None else event.priority
    limits = event.limits or job.limits
    if (priority, limits) != (job.priority, job.limits):
        draft.emit(JobRetuned(job_id=job.job_id, priority=priority, limits=limits))
        draft.publish(job.job_id)


def on_pool(draft: Draft, event: PoolCreated) -> None:
    """Notes a pool of this partition and makes it known to agents."""
    pool = draft.state.pools.get(event.pool)
    if pool is None or not pool.created:
        draft.emit(event)
