"""Handling of what an agent reports of a job's outputs, and of intake's answers.

Holds: of an attempt the first report counts; an answer counts once, and only for an output that was asked for.
"""

from trainhouse.events.model.job_outputs import OutputAnswered, OutputsNoted, OutputsSealed
from trainhouse.scheduler.core.attempts.job_outputs import OUTPUTS_SINCE, checked
from trainhouse.scheduler.core.attempts.stopping import settle
from trainhouse.scheduler.core.handlers.reports import current
from trainhouse.scheduler.core.state.draft import Draft


def on_sealed(draft: Draft, report: OutputsSealed) -> None:
    """Notes the outputs of the present attempt."""
    job = current(draft.state, report)
    if job is None or not job.spec.outputs or job.outputs is not None or draft.level < OUTPUTS_SINCE:
        return
    draft.emit(OutputsNoted(report=checked(job, report)))
    settle(draft, job.job_id)


def on_answered(draft: Draft, answer: OutputAnswered) -> None:
    """Notes an answer; the last one ends the job."""
    job = draft.live(answer.job_id)
    if job is None or job.outputs is None or not job.awaits_answers:
        return
    asked = {(version.dataset, version.sha256) for version in job.outputs.sealed.versions}
    if (answer.dataset, answer.sha256) in asked and all(known.dataset != answer.dataset for known in job.outputs.answers):
        draft.emit(answer)
        settle(draft, job.job_id)
