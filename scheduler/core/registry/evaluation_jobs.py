"""Jobs that evaluate versions, as a model's gate says (`evaluate`): their ids and specs, and which of them may be started. Pure.

Holds: the id follows from project, model, version, suite and the number of the try, the spec from the gate and the version, so that a job
that is submitted again is the same job. It has the registrant's name and the model's project. It begins from nothing, and names the
version's checkpoint, where it is one, in `resume_from`, by which alone its rank may read it.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trainhouse.events import JobId, JobSpec, JobState, JobStatus, ModelEvaluated
from trainhouse.events.model.gate_evaluation import EvaluationKind, GateEvaluation
from trainhouse.events.model.job_ids import slug
from trainhouse.events.model.version_names import is_by_content
from trainhouse.scheduler.core.intake.own_jobs import submission_of, user_of_job
from trainhouse.scheduler.core.registry.registry_state import EvaluationJob, ModelEntry, RunningEvaluation, Version
from trainhouse.scheduler.core.registry.trained_on import is_same, trained_on

PREFIX: Final = "evaluate-"
"""Beginning of the ids of these jobs; others may have it, too."""
PROGRAM: Final = ("python", "-m", "trainhouse.workers.evaluation", "version")
_OF_JOB: Final = frozenset({"dataset", "purpose", "device_type", "pool", "team", "priority", "run_time_s", "code", "format", "model"})
"""Fields that the job's spec has; the others describe the evaluation."""


@dataclass(frozen=True, slots=True)
class EvaluatedJob:
    """A job that has evaluated a version: of which model and content, by which suite, and who submitted it."""

    project: str
    name: str
    content: str
    suite: str
    job_id: str
    user: str
    ended_at_ms: int


def evaluation_job_id(model: ModelEntry, version: int, suite: str, attempt: int) -> JobId:
    """Id of a try."""
    named = orjson.dumps([model.project, model.name, version, suite, attempt])
    return JobId.parse(f"{PREFIX}{slug(model.name)}-{version}-{hashlib.sha256(named).hexdigest()[:16]}")


def is_end(status: JobStatus) -> bool:
    """Whether a status is of the end of such a job. A refusal of another request about it, a review as much as a submission of somebody
    else, is none."""
    if not status.state.final or not str(status.job_id).startswith(PREFIX):
        return False
    return status.state is not JobState.REJECTED or status.submission_id == submission_of(str(status.job_id))


def evaluation_spec(model: ModelEntry, version: Version, evaluation: GateEvaluation) -> JobSpec:
    """Spec of the job. What it runs is the last part of its command, as JSON."""
    facts, data = version.facts, None
    if evaluation.dataset is not None:
        data = {"dataset": evaluation.dataset, "split": evaluation.split, "purpose": evaluation.purpose}
    limits = {"restarts": 0} | ({"run_time_s": evaluation.run_time_s} if evaluation.run_time_s is not None else {})
    return JobSpec.model_validate(
        {
            "name": f"{PREFIX}{slug(model.name)}",
            "project": model.project,
            "team": evaluation.team,
            "user": user_of_job(version.registered_by),
            "pool": evaluation.pool,
            "priority": evaluation.priority,
            "seed": evaluation.seed,
            "resources": {"device_type": evaluation.device_type},
            "runtime": {"command": (*PROGRAM, _described(model, version, evaluation))},
            "code": evaluation.code,
            "data": data,
            "resume_from": f"{facts.job_id}@{facts.commit}" if facts.commit else None,  # of a version of files alone there is none
            "limits": limits,
            "labels": {"model": f"{model.key}@{version.version}"[:128], "suite": evaluation.suite},
        }
    )


def _described(model: ModelEntry, version: Version, evaluation: GateEvaluation) -> str:
    about: dict[str, Any] = {
        "project": model.project,
        "name": model.name,
        "version": version.version,
        "semver": version.semver,
        "content": version.facts.content,
        "format": evaluation.format,
        "model": evaluation.model,
        "evaluation": evaluation.model_dump(mode="json", exclude=set(_OF_JOB)),
    }
    return orjson.dumps(about, option=orjson.OPT_SORT_KEYS).decode()


def next_try(model: ModelEntry, version: Version, evaluation: GateEvaluation) -> tuple[EvaluationJob, JobSpec] | str:
    """The job that is to be submitted, with its spec; or why there is none."""
    suite = evaluation.suite
    last = version.last_job(suite)
    if last is not None and last.is_running:
        return f"job {last.job_id} evaluates it by suite {suite} already"
    seen = ""
    if evaluation.dataset is not None and is_by_content(evaluation.dataset):
        seen = trained_on(version.facts, evaluation.dataset, evaluation.split)
    if seen:
        return (
            f"job {version.facts.job_id} was trained on {seen}, so a result on it is no evidence: let `evaluate` of the gate name another "
            "split"
        )
    spec = evaluation_spec(model, version, evaluation)
    # Of all suites: the tries of one may be kept no longer, while the newest job of the version always is.
    attempt, spec_sha256 = 1 + max((job.attempt for job in version.jobs), default=0), spec.sha256()
    if last is not None and last.evaluation_id and last.spec_sha256 == spec_sha256:
        return f"job {last.job_id} has evaluated it so by suite {suite}: result {last.evaluation_id}"
    job_id = evaluation_job_id(model, version.version, suite, attempt)
    return EvaluationJob(suite, attempt, str(job_id), spec_sha256), spec


def why_other_data(evaluation: GateEvaluation, result: ModelEvaluated) -> str:
    """The reason that a result of a job is not on the data of the gate's evaluation; empty where it is. A command may read its own."""
    if evaluation.dataset is None or (evaluation.kind is EvaluationKind.COMMAND and not result.dataset):
        return ""
    if is_same(evaluation.dataset, result.dataset) and evaluation.split == result.split:
        return ""
    on = f"{result.dataset or 'no dataset'} split {result.split or 'none'}"
    return f"its result is on {on}, and the gate's evaluation is on {evaluation.dataset} split {evaluation.split}"


def why_no_result(running: RunningEvaluation, status: JobStatus) -> str:
    """The reason that a job whose status this is left no result; empty where it may have left one."""
    if status.state is JobState.REJECTED:
        return f"it is REJECTED: {status.reason}"
    if status.spec_sha256 != running.job.spec_sha256:
        return "a job of this id has another spec than the gate's, so nothing of it counts"
    return "" if status.state is JobState.SUCCEEDED else f"it is {status.state}: {status.reason}"


def job_detail(last: EvaluationJob | None) -> str:
    """Sentence about the last job that evaluates a version by a suite; empty where there is none, or it gave a result."""
    if last is None or last.evaluation_id:
        return ""
    if last.is_running:
        return f"job {last.job_id} evaluates it"
    return f"job {last.job_id} was to evaluate it, and gave no result: {last.reason}; `trainhouse models evaluate --submit` starts another"
