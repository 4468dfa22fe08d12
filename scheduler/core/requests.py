"""What people ask for: jobs, cancellations, changes, pools, as the directory forwards them.

Holds: each is handled once, however often it arrives: its order token says whether it was seen.
"""

from typing import Final

from trainhouse.events import CancelJob, ChangeJob, Envelope, JobAdmitted, PoolCreated
from trainhouse.events.decisions import JobQueued, JobRetuned, TokenSeen
from trainhouse.events.phases import Cancelled, Pending, Rejected, StopCause, StopKind, Stopping
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.life import stop
from trainhouse.scheduler.core.policy import ANY, capacity
from trainhouse.scheduler.core.records import Job

POOL_SETTLES_MS: Final = 15_000


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
    """Queues the job, or refuses it when its pool could never hold the gang."""
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
    if not refuse_if_impossible(draft, draft.state.job(event.job_id)):
        draft.publish(event.job_id)


def refuse_if_impossible(draft: Draft, job: Job) -> bool:
    """Rejects a waiting job whose pool, even idle, could not hold its gang; True if it did.

    A pool that got a new device within POOL_SETTLES_MS, or never had one, is still being built: nobody is refused for that.
    """
    pool = draft.state.pools.get(job.pool)
    if pool is None or pool.grown_at_ms is None or draft.now_ms - pool.grown_at_ms < POOL_SETTLES_MS:
        return False
    most = capacity(draft.state.in_pool(job.pool), job.spec)
    if most >= job.spec.gang.ranks:
        return False
    draft.move(job.job_id, Rejected(), _impossible(draft, job, most))
    return True


def _impossible(draft: Draft, job: Job, most: int) -> str:
    offered: dict[str, int] = {}
    for node in draft.state.in_pool(job.pool):
        for device_type, ids in node.offered().items():
            offered[device_type] = offered.get(device_type, 0) + len(ids)
    has = ", ".join(f"{count} of type {t}" for t, count in sorted(offered.items())) or "no devices"
    spec, per = job.spec, job.spec.resources
    needs = f"{spec.gang.ranks} devices" + ("" if per.device_type == ANY else f" of type {per.device_type}")
    each = [f"{per.cpus_per_device:g} cpus"] if per.cpus_per_device else []
    each += [f"{per.memory_gib_per_device:g} GiB of memory"] if per.memory_gib_per_device else []
    beside = f", with {' and '.join(each)} for each" if each else ""
    return (
        f"the gang can never be held: it needs {needs}{beside}; pool {job.pool} has {has} in all, "
        f"on which {most} such ranks fit. Ask for fewer or other devices, or add nodes, and submit it under a new id"
    )


def on_cancel(draft: Draft, event: CancelJob) -> None:
    """Ends the job; of one that is finished or unknown, nothing comes."""
    job = draft.live(event.job_id)
    if job is None:
        return
    reason = event.reason if event.user == "unknown" else f"{event.reason} (by {event.user})"
    if isinstance(job.phase, Pending):
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
