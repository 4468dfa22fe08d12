"""Handling of agents' reports about attempts.

Holds: a report of an older epoch, or of a node that has no part in the attempt, changes no job; a repeat or a late one is harmless.
"""

from typing import Final

from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointCompleted,
    LastCheckpoint,
    LaunchFailed,
    ProgressReported,
    RankExited,
    SessionOpened,
)
from trainhouse.events.model.attempt import AttemptReport
from trainhouse.events.model.decisions import CheckpointNoted, DevicesFreed, JobMoved, JobProgressed, PartStarted, RankFinished
from trainhouse.events.model.interactive_end import SESSION_ENDED
from trainhouse.events.model.phases import Checkpointing, Initializing, PartEnd, Progress, Running, Scheduled, StopCause, StopKind, Stopping
from trainhouse.events.wire.rank_end import one_line
from trainhouse.scheduler.core.attempts.end_line import end_line
from trainhouse.scheduler.core.attempts.evidence import note_end, note_launch
from trainhouse.scheduler.core.attempts.job_outputs import let_seal, session_end
from trainhouse.scheduler.core.attempts.stopping import end_part, settle, stop
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.core.state.status import next_live_seq

STATUS_EVERY_MS: Final = 900
MARK_EVERY_MS: Final = 60_000
NO_PROGRESS: Final = "runs; it reports no progress"  # until it does
EXIT_STOPPED: Final = 75  # of a session that was asked to save and stop, and did


def current(state: ScheduleState, report: AttemptReport) -> Job | None:
    """The job, if the report is about its present attempt and comes from one of its nodes."""
    job = state.jobs.get(report.job_id)
    if job is None or job.allotment is None or job.allotment.epoch != report.epoch:
        return None
    return job if any(p.node_id == report.node_id for p in job.allotment.placements) else None


def on_started(draft: Draft, report: AttemptStarted) -> None:
    """A node's ranks have processes; when all nodes' have, the job initializes."""
    job = current(draft.state, report)
    if job is None or job.allotment is None or report.node_id in job.allotment.started:
        return
    draft.emit(PartStarted(job_id=job.job_id, epoch=report.epoch, node_id=report.node_id))
    job = draft.state.job(job.job_id)
    if isinstance(job.phase, Scheduled) and job.allotment and len(job.allotment.started) == len(job.allotment.placements):
        draft.move(job.job_id, Initializing(since_ms=draft.now_ms, session=job.phase.session), session_end(job))


def on_session(draft: Draft, report: SessionOpened) -> None:
    """A session will report progress: until it does, the job is given longer to initialize."""
    job = current(draft.state, report)
    if job is not None and isinstance(job.phase, Scheduled | Initializing) and not job.phase.session:
        phase = job.phase.model_copy(update={"session": True})
        draft.emit(JobMoved(job_id=job.job_id, phase=phase, reason=job.reason))


def on_launch_failed(draft: Draft, report: LaunchFailed) -> None:
    """A node could not start its ranks: tried again elsewhere, or the end of a job that no node could start."""
    job = current(draft.state, report)
    if job is None or isinstance(job.phase, Stopping):
        return
    kind = StopKind.LOST if report.retryable else StopKind.FATAL
    note_launch(draft, job, report.node_id, report.reason)
    stop(
        draft, draft.state.job(job.job_id), StopCause(kind=kind, reason=f"node {report.node_id} could not start its ranks: {report.reason}")
    )


def on_rank_exited(draft: Draft, report: RankExited) -> None:
    """A clean exit is noted; any other one ends the attempt, and is kept for its judgement, also when it is ending already."""
    job = current(draft.state, report)
    if job is None or job.allotment is None:
        return
    part = next(p for p in job.allotment.placements if p.node_id == report.node_id)
    if report.rank not in part.ranks:
        return
    if report.clean:
        if report.rank not in job.allotment.clean_ranks:
            draft.emit(RankFinished(job_id=job.job_id, epoch=report.epoch, rank=report.rank))
            if job.spec.interactive is not None and report.reason.startswith(SESSION_ENDED) and not isinstance(job.phase, Stopping):
                draft.move(job.job_id, job.phase, one_line(report.reason))
            let_seal(draft, draft.state.job(job.job_id))
            settle(draft, job.job_id)
        return
    note_end(draft, job, part, report)
    if not isinstance(job.phase, Stopping):
        reason = end_line(report.rank, report.node_id, report.exit_code, report.signal, report.reason, by_agent=report.by_agent)
        stop(draft, draft.state.job(job.job_id), StopCause(kind=_kind_of_exit(report), reason=reason))


def _kind_of_exit(report: RankExited) -> StopKind:
    """An end that could not be learnt, or that was not ordered (a node shuts down: SIGTERM, or its agent asked the ranks to save
    and leave, and could not tell us) is no failure of the job's own."""
    unknown = report.exit_code is None and report.signal is None
    asked = report.by_agent or report.signal == 15 or report.exit_code == EXIT_STOPPED
    return StopKind.LOST if unknown or asked else StopKind.RANK_FAILED


def on_stopped(draft: Draft, report: AttemptStopped) -> None:
    """Nothing is left of an attempt on a node: its devices are free, whatever became of the job."""
    node = draft.state.nodes.get(report.node_id)
    if node is not None and node.hold_of(report.job_id, report.epoch) is not None:
        draft.emit(DevicesFreed(node_id=report.node_id, job_id=report.job_id, epoch=report.epoch))
    job = current(draft.state, report)
    if job is not None:
        end_part(draft, job, report.node_id, PartEnd.STOPPED)


def on_progress(draft: Draft, report: ProgressReported, *, by_owner: bool = False) -> None:
    """Notes where training is: an attempt's first report, its last one, what the owner itself puts into a record (a mark), and of what else
    is on control (an older agent sends all of its reports there) one in MARK_EVERY_MS. All others are for the live status alone.

    A mark gives the next portion of live numbers. The status follows otherwise, at once when the job begins to run.
    """
    job = current(draft.state, report)
    if job is None or is_old(job.progress, report):
        return
    begins = isinstance(job.phase, Scheduled | Initializing) or (isinstance(job.phase, Running) and job.reason == NO_PROGRESS)
    if not (by_owner or begins or report.last or changes_decisions(job, report) or draft.now_ms - job.status_at_ms >= MARK_EVERY_MS):
        return
    live_seq = next_live_seq(job) if by_owner and not begins else None
    fields = {name: getattr(report, name) for name in Progress.model_fields}
    draft.emit(JobProgressed(job_id=job.job_id, progress=Progress(**fields), live_seq=live_seq))
    if begins:
        draft.move(job.job_id, Running(since_ms=draft.now_ms), session_end(job))
    elif live_seq is None and (by_owner or draft.now_ms - job.status_at_ms >= STATUS_EVERY_MS):
        draft.publish(job.job_id)


def changes_decisions(job: Job, report: ProgressReported) -> bool:
    """Whether what the report says would let another decision be made than what is known: of this attempt, and who could save alone."""
    known = job.progress
    return known is None or known.epoch != report.epoch or known.saved_alone != report.saved_alone


def is_old(known: Progress | ProgressReported | None, report: ProgressReported) -> bool:
    """Whether more is known. A rank's clock may have been set back: a later step counts all the same."""
    return known is not None and known.epoch == report.epoch and report.at_ms <= known.at_ms and report.step <= known.step


def on_checkpoint(draft: Draft, report: CheckpointCompleted) -> None:
    """Notes a newer commit, of any epoch that there was: it stands in the job's chain. A job that saved before its release is released."""
    job = draft.live(report.job_id)
    if job is None or job.epoch == 0 or report.epoch > job.epoch:
        return
    if job.last_checkpoint is not None and report.commit <= job.last_checkpoint.commit:
        return
    noted = LastCheckpoint(commit=report.commit, step=report.step, uri=report.uri, completed_at_ms=report.at_ms)
    # One that began within the bound saved: from here on its own line is what counts.
    bound = None if report.epoch == job.epoch else job.restore_at_most
    draft.emit(CheckpointNoted(job_id=job.job_id, checkpoint=noted, restore_at_most=bound))
    if isinstance(job.phase, Checkpointing) and report.epoch == job.epoch:
        stop(draft, job, job.phase.cause)
    else:
        draft.publish(job.job_id)
