"""End of a job whose ranks have all exited with code 0: at once, or when intake has published the outputs that its spec names.

Holds: intake is asked once, by one decision of the journal; from then on nothing but its answers ends the job, so that what is published is
a succeeded job's. A report names no other dataset and no other project than the spec.
"""

from typing import Final

from trainhouse.events.model.job_outputs import OutputsRequested, OutputsSealed
from trainhouse.events.model.phases import Failed, Succeeded
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job

OUTPUTS_SINCE: Final = 17
"""Level from which reports of outputs are taken, and intake is asked to publish them."""
_EXITED: Final = "every rank exited with code 0"


def succeed(draft: Draft, job: Job) -> None:
    """Ends the job, asks intake for its outputs, or waits for the answers."""
    outputs = job.outputs
    if not job.spec.outputs:
        draft.move(job.job_id, Succeeded(), _EXITED)
    elif outputs is None:
        draft.move(job.job_id, Failed(), f"{_EXITED}, but its outputs are not published: {_why_none(draft)}")
    elif outputs.sealed.failure:
        draft.move(job.job_id, Failed(), f"{_EXITED}, but its outputs are not published: {outputs.sealed.failure}")
    elif not outputs.requested:
        versions, user = outputs.sealed.versions, job.spec.user
        draft.emit(OutputsRequested(job_id=job.job_id, epoch=job.epoch, pool=job.pool, user=user, versions=versions))
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


def is_decided(job: Job) -> bool:
    """Whether intake was asked for its outputs, so that its answers alone end the job."""
    return job.outputs is not None and job.outputs.requested


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
