"""Statuses under the id of a trial's job, as the tuner is to know them. Pure.

Holds: a status of another submission counts for nothing but this: the id is taken for ever, so the trial can never have a job under it. A
status that was deleted before it was read is the end of a job that is neither complete nor failed.
"""

from trainhouse.events import JobState, JobStatus
from trainhouse.events.model.ids import JobId
from trainhouse.scheduler.core.intake.own_jobs import submission_of
from trainhouse.scheduler.core.studies.study_state import Trial
from trainhouse.scheduler.core.studies.trial_jobs import admission_of


def as_of_trial(status: JobStatus, trial: Trial) -> JobStatus | None:
    """Returns a status as the trial's own; None: it is not about its job."""
    if is_set_aside(status, trial):
        return status.model_copy(update={"state": JobState.REJECTED})
    if status.state is JobState.REJECTED and status.submission_id != submission_of(trial.job_id):
        return None  # of another request about it
    if status.spec_sha256 and status.spec_sha256 != trial.spec_sha256:
        reason = (
            f"job id {trial.job_id} is taken: another submission with another spec came under it before the trial's own; "
            "see who may write to trainhouse.jobs"
        )
        nothing = {"elapsed_s": None, "world_size": None}
        return status.model_copy(update={"state": JobState.REJECTED, "reason": reason} | nothing)
    return status if status.state is JobState.REJECTED or status.spec_sha256 else None


def is_set_aside(status: JobStatus, trial: Trial) -> bool:
    """Whether the program failed on the submission of a trial's job, or on its admission: there is no such job then, though the notice says
    NEEDS_REVIEW. One of a job that there is names its spec."""
    made_it = (submission_of(trial.job_id), admission_of(trial.job_id))
    return status.state is JobState.NEEDS_REVIEW and not status.spec_sha256 and status.submission_id in made_it


def deleted(job_id: str, at_ms: int) -> JobStatus:
    """Returns the end of a job whose last status was deleted before it was read: values that were read count only for what they are."""
    reason = "the last status of its job was deleted from trainhouse.status before the tuner had read it: whether it succeeded is not known"
    fields = {"job_id": JobId(job_id), "status_seq": 0, "state": JobState.CANCELLED, "reason": reason}
    return JobStatus.model_validate(fields | {"finished_at_ms": at_ms, "updated_at_ms": at_ms})
