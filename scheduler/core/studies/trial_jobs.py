"""Jobs of trials: their ids and specs. Pure.

Holds: the id follows from project, study, number of the trial and of its submission, the spec from the study's and the trial's values, so
that a submission that is sent again is of the same job. It has the name of the study's creator and the study's project.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import orjson

from trainhouse.events import JobId, JobSpec, StudySpec
from trainhouse.events.model.job_ids import slug
from trainhouse.events.model.study_space import Parameter, Value
from trainhouse.scheduler.core.intake.own_jobs import user_of_job
from trainhouse.scheduler.core.studies.study_state import StudyEntry

PREFIX: Final = "study-"
"""Beginning of the ids of these jobs; others may have it, too."""


def trial_job_id(project: str, study: str, trial: int, submission: int = 0) -> JobId:
    """Id of a trial's job. `submission`: how often it was refused for a reason that passes."""
    named = orjson.dumps([project, study, trial, *([submission] if submission else [])])
    return JobId.parse(f"{PREFIX}{slug(study)}-{trial}-{hashlib.sha256(named).hexdigest()[:16]}")


def admission_of(job_id: str) -> str:
    """Id of the event by which the directory passes a job to its scheduler."""
    return f"{job_id}:admitted"


def trial_spec(spec: StudySpec, project: str, study: str, user: str, trial: int, values: Mapping[str, Value]) -> JobSpec:
    """Spec of a trial's job. Raises pydantic's ValidationError for more hyperparameters or labels than a job may have."""
    return JobSpec.model_validate(
        spec.job.model_dump(mode="json")
        | {
            "project": project,
            "user": user_of_job(user),
            "hyperparameters": {**spec.job.hyperparameters, **values},
            "labels": {**spec.job.labels, "study": f"{project}/{study}", "trial": str(trial)},
        }
    )


def submission_fields(entry: StudyEntry, trial: int, values: Mapping[str, Value], submission: int = 0) -> dict[str, Any]:
    """Fields of the decision that submits a trial's job."""
    spec = trial_spec(entry.spec, entry.project, entry.study, entry.user, trial, values)
    job_id = trial_job_id(entry.project, entry.study, trial, submission)
    return {"trial": trial, "job_id": job_id, "spec": spec, "spec_sha256": spec.sha256(), "asked_as": entry.asked_as}


def largest_values(space: Mapping[str, Parameter]) -> dict[str, Value]:
    """Values of a trial whose spec is as long as any: the longest choices, and numbers of many digits."""
    return {name: max(each.choices, key=lambda choice: len(str(choice).encode()), default=-1.0e-300 / 3) for name, each in space.items()}
