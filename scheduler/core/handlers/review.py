"""A job that a person must judge: sent to review it leaves its devices or its queue, and waits until a person lets it go on or cancels it.

Holds: what cannot be obeyed is refused under the request's own id, and changes nothing; a job whose end is decided already ends as
decided. A review shortens no pause between restarts, and makes no room in a project's queue.
Never: frees a device; starts a job.
"""

from typing import Final

from trainhouse.events import Envelope, Event, JobRejected, JobReviewed, ReviewAction, ReviewJob
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.phases import Cancelled, Checkpointing, Pending, StopCause, StopKind, Stopping, UnderReview
from trainhouse.events.model.pool import ClaimDropped, StartUnreserved
from trainhouse.events.wire.topics import DEAD_LETTERS
from trainhouse.scheduler.core.attempts.eviction import ask_to_leave, unhurried_ms
from trainhouse.scheduler.core.attempts.stopping import stop
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.core.state.transitions import state_of

BAD_SAMPLES_SINCE: Final = 15
"""Level from which bad samples of a review are counted, a review may change their limit, and reports of shards are taken."""
_MAX_REASON_CHARS: Final = 1024
_DONE: Final = {
    ReviewAction.SEND: "sent to review",
    ReviewAction.GO_ON: "goes on after its review",
    ReviewAction.CANCEL: "cancelled in review",
}


def on_review(draft: Draft, envelope: Envelope) -> None:
    """Obeys a request about a job's review, or refuses it."""
    event = envelope.event
    assert isinstance(event, ReviewJob)
    job = draft.live(event.job_id)
    refused = _why_not(job, event) or _why_not_max_bad(draft, job, event)
    if job is None or refused:
        _refuse(draft, envelope, event, refused)
        return
    draft.emit(
        JobReviewed(
            job_id=event.job_id,
            action=event.action,
            event_id=envelope.id,
            pool=job.pool,
            user=event.user,
            reason=event.reason,
            at_ms=draft.now_ms,
            max_bad=event.max_bad,
        )
    )
    reason = _review_reason(event)
    match event.action:
        case ReviewAction.SEND:
            send(draft, job, reason)
        case ReviewAction.GO_ON:
            assert isinstance(job.phase, UnderReview)
            draft.move(job.job_id, Pending(not_before_ms=job.phase.not_before_ms), reason)
        case ReviewAction.CANCEL:
            draft.move(job.job_id, Cancelled(), reason)


def after_failure(state: ScheduleState, event: Event, reason: str) -> ReviewJob | None:
    """The review of a job that an unmanageable input is about; None where it says nothing of the job as it is now."""
    job = state.jobs.get(str(getattr(event, "job_id", None) or ""))
    if job is None or job.awaits_answers or leaves_for(job) is not None or isinstance(job.phase, Stopping | UnderReview):
        return None
    if not _of_now(job, getattr(event, "epoch", None), getattr(event, "node_id", None)):
        return None
    text = f"{event.event_type} about it could not be handled, and is in {DEAD_LETTERS}: {reason}"[:_MAX_REASON_CHARS]
    return ReviewJob(job_id=job.job_id, action=ReviewAction.SEND, user=TRAINHOUSE, reason=text)


def _of_now(job: Job, epoch: int | None, node_id: str | None) -> bool:
    """Whether what names an attempt means the present one, and what names a node one of its gang."""
    gang = () if job.allotment is None else job.allotment.placements
    return epoch in (None, job.epoch) and (node_id is None or any(p.node_id == node_id for p in gang))


def send(draft: Draft, job: Job, reason: str) -> None:
    """Sends a live job to review; a gang that makes way for another leaves for the review instead."""
    cause = StopCause(kind=StopKind.REVIEW, reason=reason)
    phase = job.phase
    if isinstance(phase, Pending):
        if job.job_id in draft.state.claims:
            draft.emit(ClaimDropped(job_id=job.job_id))
        if job.job_id in draft.state.reservations:
            draft.emit(StartUnreserved(job_id=job.job_id))
        draft.move(job.job_id, UnderReview(not_before_ms=phase.not_before_ms), reason)
    elif isinstance(phase, Checkpointing):
        draft.move(job.job_id, Checkpointing(deadline_ms=phase.deadline_ms, cause=cause), f"saves, because it is {reason}")
    elif isinstance(phase, Stopping):
        stop(draft, job, cause)
    else:
        ask_to_leave(draft, job, cause, unhurried_ms(draft, job))


def leaves_for(job: Job) -> StopKind | None:
    """Returns the kind of stop for which its gang is being released, where the job then ends or goes to a review; else None."""
    phase = job.phase
    if not isinstance(phase, Checkpointing | Stopping) or phase.cause.kind.makes_way:
        return None
    return phase.cause.kind


def _why_not(job: Job | None, event: ReviewJob) -> str:
    """Returns the reason for which a request cannot be obeyed; empty if it can."""
    if job is None:
        return "it has ended"
    if job.awaits_answers:
        return "its outputs are being published, and it ends by the answer of intake"
    state = state_of(job.phase)
    if event.action is not ReviewAction.SEND:
        if isinstance(job.phase, UnderReview):
            return ""
        if leaves_for(job) is StopKind.REVIEW:
            return f"it is {state} and still leaves its devices; ask again when it is NEEDS_REVIEW"
        instead = "; `trainhouse cancel` ends it" if event.action is ReviewAction.CANCEL else ""
        return f"it is {state}, not NEEDS_REVIEW{instead}"
    if isinstance(job.phase, UnderReview) or leaves_for(job) is StopKind.REVIEW:
        return "it was sent to review already"
    if leaves_for(job) is not None:
        return f"its attempt is ending ({job.reason.partition(chr(10))[0][:200]}); ask again when it waits or runs"
    return ""


def _why_not_max_bad(draft: Draft, job: Job | None, event: ReviewJob) -> str:
    """Returns the reason for which a job gets no other limit of bad samples; empty if it does, or none is named."""
    if event.max_bad is None or job is None:
        return ""
    if draft.level < BAD_SAMPLES_SINCE:
        return "an update is not finished; run `trainhouse upgrade finish --reason TEXT`, or leave max_bad out"
    if event.action is not ReviewAction.GO_ON:
        return "max_bad goes with go_on; leave it out"
    if job.spec.data is None or job.spec.data.dataset is None:
        return "it reads no published dataset, so that max_bad says nothing; leave it out"
    return ""


def _refuse(draft: Draft, envelope: Envelope, event: ReviewJob, why: str) -> None:
    job, asked = draft.live(event.job_id), event.requested_by
    project = job.spec.project if job is not None else asked.project if asked is not None else ""
    draft.emit(
        JobRejected(
            job_id=event.job_id,
            submission_id=envelope.id,
            reason=f"job {event.job_id} cannot be reviewed ({event.action}): {why}",
            rejected_at_ms=draft.now_ms,
            project=project,
        )
    )


def _review_reason(event: ReviewJob) -> str:
    by = "" if event.user == "unknown" else f" by {event.user}"
    return f"{_DONE[event.action]}{by}" + (f": {event.reason}" if event.reason else "")
