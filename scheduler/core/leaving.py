"""A running gang that is asked to leave its devices: it saves first if it can, and ends.

Holds: a gang is asked once; what it was asked for stands, whatever goes wrong while it saves.
Never: frees a device; its nodes say when nothing is left.
"""

from trainhouse.events import CheckpointRequested
from trainhouse.events.phases import Checkpointing, Running, StopCause, Stopping
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.life import stop
from trainhouse.scheduler.core.records import Job


def ask_to_leave(draft: Draft, job: Job, cause: StopCause, deadline_ms: int) -> None:
    """Asks a job that talks to us to save until `deadline_ms` and end; releases any other at once. One that is leaving is left alone."""
    allotment = job.allotment
    if allotment is None or isinstance(job.phase, Checkpointing | Stopping):
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
