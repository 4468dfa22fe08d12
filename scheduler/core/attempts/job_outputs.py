"""End of a job whose ranks have all exited with code 0: at once, or when intake has published the outputs that its spec names.

Holds: intake is asked by a decision of the journal, again while it does not answer; from then on its answers end the job, so that what is
published is a succeeded job's. Only where REQUESTS_AT_LEAST requests have no answer a cancel or the limit of run time ends it, and where
REQUESTS_AT_MOST have none it ends by itself; its reason says that its outputs may be published. When intake is to be asked again, it is
asked first, so that a job that nothing looked at for long does not end at the first look. A report names no other dataset and no other
project than the spec.
"""

from typing import Final

from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.interactive_end import SESSION_ENDED
from trainhouse.events.model.job_outputs import OutputsRequested, OutputsSealed
from trainhouse.events.model.phases import Allotment, Cancelled, Checkpointing, Failed, StopCause, StopKind, Stopping, Succeeded
from trainhouse.scheduler.core.state.deadlines import REQUESTS_AT_LEAST, ask_again_ms, give_up_ms, run_time_ms
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job, JobOutputs
from trainhouse.scheduler.core.state.transitions import state_of

OUTPUTS_SINCE: Final = 17
"""Level from which reports of outputs are taken, and intake is asked to publish them."""
SEALING_MS: Final = 600_000
"""What asks a finished attempt to leave waits as long as this for the report of its outputs, where its nodes stay."""
_EXITED: Final = "every rank exited with code 0"


def session_end(job: Job) -> str:
    """Returns the reason of the end of the job's interactive session, as its rank reported it; empty before that, and for any other job.
    It stays the job's reason, whatever else is reported until the attempt has ended."""
    return job.reason if job.spec.interactive is not None and job.reason.startswith(SESSION_ENDED) else ""


def succeed(draft: Draft, job: Job) -> None:
    """Ends the job, asks intake for its outputs, or waits for the answers."""
    outputs = job.outputs
    if not job.spec.outputs:
        draft.move(job.job_id, Succeeded(), session_end(job) or _EXITED)
    elif outputs is None:
        draft.move(job.job_id, Failed(), f"{_EXITED}, but its outputs are not published: {_why_none(draft)}")
    elif outputs.sealed.failure:
        draft.move(job.job_id, Failed(), f"{_EXITED}, but its outputs are not published: {outputs.sealed.failure}")
    elif not outputs.requests:
        _ask(draft, job, outputs)
        draft.move(job.job_id, job.phase, f"{_EXITED}; its outputs are being published")
    elif len(outputs.answers) == len(outputs.sealed.versions):
        refused = [f"{answer.dataset}: {answer.refusal}" for answer in outputs.answers if answer.refusal]
        if refused:
            draft.move(job.job_id, Failed(), f"{_EXITED}, but its outputs are not all published: {'; '.join(refused)}")
        else:
            named = ", ".join(str(version.name) for version in outputs.sealed.versions)
            draft.move(job.job_id, Succeeded(), f"{_EXITED}; it published {named}")


def may_succeed(job: Job) -> bool:
    """Whether its outputs, where it has any, were reported: else an attempt that is stopped has to be done again."""
    return not job.spec.outputs or job.outputs is not None


def all_clean(allotment: Allotment) -> bool:
    """Whether every rank exited with code 0."""
    return len(allotment.clean_ranks) == sum(len(p.devices) for p in allotment.placements)


def is_sealing(draft: Draft, job: Job) -> bool:
    """Whether its work is done, and its agents have yet to report the outputs that they seal."""
    done = job.allotment is not None and all_clean(job.allotment) and not isinstance(job.phase, Stopping)
    return done and bool(job.spec.outputs) and job.outputs is None and draft.level >= OUTPUTS_SINCE


def sealed_by_ms(draft: Draft, job: Job, deadline_ms: int) -> int:
    """Returns the time by which a job that seals is to have left: later than the deadline of a save, unless one of its nodes goes away."""
    assert job.allotment is not None
    if any(draft.state.node(p.node_id).notice is not None for p in job.allotment.placements):
        return deadline_ms
    return max(deadline_ms, draft.now_ms + SEALING_MS)


def let_seal(draft: Draft, job: Job) -> None:
    """Gives a job that was asked to save and leave, and finished instead, the time to seal its outputs."""
    phase = job.phase
    if isinstance(phase, Checkpointing) and is_sealing(draft, job):
        deadline_ms = sealed_by_ms(draft, job, phase.deadline_ms)
        draft.move(job.job_id, Checkpointing(deadline_ms=deadline_ms, cause=phase.cause), sealing_because(phase.cause))


def sealing_because(cause: StopCause) -> str:
    """The reason of a job that leaves when its outputs are sealed."""
    return f"{_EXITED}, and its outputs are being sealed; then it leaves, because {cause.reason}"


def end_while_waiting(draft: Draft, job: Job, cause: StopCause) -> None:
    """Notes that a cancel asks for the end of a job that waits for its answers; ends it if it has waited long enough. Any other cause
    changes nothing: it has no devices."""
    if cause.kind is not StopKind.CANCELLED:
        return
    phase = Stopping(shown=state_of(job.phase), cause=cause, grace_s=0, remind_at_ms=draft.now_ms, since_ms=draft.now_ms)
    draft.move(
        job.job_id,
        phase,
        f"{cause.reason}; it ends when intake answers about its outputs, or leaves {REQUESTS_AT_LEAST} requests (10 minutes) unanswered",
    )
    on_answers_due(draft, draft.state.job(job.job_id))


def answers_are_due(job: Job, now_ms: int) -> bool:
    """Whether a job that waits for its answers is to ask again, or to end."""
    return job.outputs is not None and now_ms >= min(ask_again_ms(job.outputs), give_up_ms(job, job.outputs))


def on_answers_due(draft: Draft, job: Job) -> None:
    """Asks intake again when it is time; else ends a job whose answers do not come, where it has asked often enough for that."""
    outputs, now_ms = job.outputs, draft.now_ms
    assert outputs is not None
    if now_ms >= ask_again_ms(outputs):
        _ask(draft, job, outputs)
    elif now_ms >= give_up_ms(job, outputs):
        minutes = (now_ms - outputs.since_ms) // 60_000
        names = ", ".join(version.dataset for version in _unanswered(outputs))
        asked = f"{outputs.requests} requests in {minutes} minutes"
        why = f"{_EXITED}, but intake has not answered {asked}: {names} may be published or not; look at `trainhouse data list`"
        cause = job.phase.cause if isinstance(job.phase, Stopping) else None
        if cause is not None and cause.kind is StopKind.CANCELLED:
            draft.move(job.job_id, Cancelled(), f"{cause.reason}; {why}")
        elif cause is not None and cause.kind is StopKind.RUN_TIME:
            draft.move(job.job_id, Failed(), f"{cause.reason}; {why}")
        elif job.limits.run_time_s is not None and now_ms >= run_time_ms(job):
            draft.move(job.job_id, Failed(), f"its run time reached limits.run_time_s = {job.limits.run_time_s:g}; {why}")
        else:
            draft.move(job.job_id, Failed(), why)


def _ask(draft: Draft, job: Job, outputs: JobOutputs) -> None:
    draft.emit(
        OutputsRequested(
            job_id=job.job_id,
            epoch=job.epoch,
            pool=job.pool,
            user=job.spec.user,
            versions=_unanswered(outputs),
            number=outputs.requests + 1,
        )
    )


def _unanswered(outputs: JobOutputs) -> tuple[DatasetVersion, ...]:
    known = {answer.dataset for answer in outputs.answers}
    return tuple(version for version in outputs.sealed.versions if version.dataset not in known)


def checked(job: Job, report: OutputsSealed) -> OutputsSealed:
    """The report as it is noted: one that does not give each output of the spec, in the job's project, is a failure."""
    names = sorted(version.dataset for version in report.versions)
    if report.failure or (names == sorted(job.spec.outputs) and all(v.project == job.spec.project for v in report.versions)):
        return report
    failure = f"node {report.node_id} reported {', '.join(names) or 'none'}, and the spec has {', '.join(job.spec.outputs)}"
    return report.model_copy(update={"versions": (), "failure": failure})


def _why_none(draft: Draft) -> str:
    if draft.level < OUTPUTS_SINCE:
        return "an update is not finished; run `trainhouse upgrade finish --reason TEXT`, then submit it again"
    return "no agent of its nodes reported them; update the agents, then submit it again"
