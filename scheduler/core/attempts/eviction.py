"""A running gang that is asked to leave its devices: it saves first if it can, and ends.

Holds: a gang is asked once; what it was asked for stands, whatever goes wrong while it saves. A later deadline than it has changes nothing,
an earlier one counts. A gang that has finished is asked nothing: it leaves when its outputs are sealed.
Never: frees a device; its nodes say when nothing is left.
"""

from typing import Final

from trainhouse.events import CheckpointRequested
from trainhouse.events.model.decisions import Hold
from trainhouse.events.model.phases import Checkpointing, Running, StopCause, Stopping
from trainhouse.scheduler.core.attempts.job_outputs import is_sealing, sealed_by_ms, sealing_because
from trainhouse.scheduler.core.attempts.stopping import stop
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job, Node

MIN_SAVE_MS: Final = 30_000


def unhurried_ms(draft: Draft, job: Job) -> int:
    """The deadline of a save where no other job waits for the devices."""
    return draft.now_ms + max(MIN_SAVE_MS, round(job.limits.grace_s * 1000))


def ask_to_leave(draft: Draft, job: Job, cause: StopCause, deadline_ms: int) -> None:
    """Asks a job that talks to us to save until `deadline_ms` and end; releases any other at once. One that is asked already is hurried."""
    allotment = job.allotment
    if allotment is None or isinstance(job.phase, Stopping) or job.awaits_answers:
        return
    seals = is_sealing(draft, job)
    if seals:
        deadline_ms = sealed_by_ms(draft, job, deadline_ms)
    if isinstance(job.phase, Checkpointing):
        if deadline_ms < job.phase.deadline_ms:
            hurried = f"saves, because {job.phase.cause.reason}; less time is left, because {cause.reason}"
            draft.move(job.job_id, Checkpointing(deadline_ms=deadline_ms, cause=job.phase.cause), hurried)
        return
    if seals and deadline_ms > draft.now_ms:
        draft.move(job.job_id, Checkpointing(deadline_ms=deadline_ms, cause=cause), sealing_because(cause))
        return
    talks = isinstance(job.phase, Running) and job.progress is not None and job.progress.epoch == job.epoch
    if not talks or deadline_ms <= draft.now_ms:
        stop(draft, job, cause)
        return
    draft.move(job.job_id, Checkpointing(deadline_ms=deadline_ms, cause=cause), f"saves, because {cause.reason}")
    draft.emit(
        CheckpointRequested(
            job_id=job.job_id,
            attempt=allotment.attempt,
            epoch=allotment.epoch,
            pool=job.pool,
            node_ids=tuple(p.node_id for p in allotment.placements),
            reason=cause.reason,
            deadline_ms=deadline_ms,
            then_stop=True,
        )
    )


def all_leave(draft: Draft, node: Node, cause: StopCause, deadline_ms: int) -> None:
    """Asks every gang with a part on a node to save and leave."""
    for job_id in jobs_on(draft, node):
        ask_to_leave(draft, draft.state.job(job_id), cause, deadline_ms)


def jobs_on(draft: Draft, node: Node, device_id: str | None = None) -> list[str]:
    """Jobs whose present attempt has a part there (on one of its devices), sorted."""
    held = (h for h in node.holds if device_id is None or device_id in h.devices)
    return sorted(str(job.job_id) for h in held if (job := holder_of(draft, node.node_id, h)) is not None)


def holder_of(draft: Draft, node_id: str, hold: Hold) -> Job | None:
    """The job whose present attempt a node's hold is of. A node may report an attempt that was never placed on it: then None."""
    job = draft.live(hold.job_id)
    if job is None or job.allotment is None or job.allotment.epoch != hold.epoch:
        return None
    return job if any(p.node_id == node_id for p in job.allotment.placements) else None
