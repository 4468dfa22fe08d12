"""Trials that need not run, since one of their study with equal values has: its job had the same code, data and seed. Pure.

Holds: a value is taken over of a complete trial alone, the first one, and only where the spec names code and data by their hashes.
"""

from collections.abc import Mapping
from typing import Final

from trainhouse.events import JobSpec, TrialState
from trainhouse.events.model.study_space import Value
from trainhouse.events.model.study_values import same_value
from trainhouse.scheduler.core.studies.study_state import StudyEntry, Trial
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id

LEAST_COPIES: Final = 100
COPIES_PER_PARALLEL: Final = 10


def why_run_again(job: JobSpec, *, sends_code: bool = False) -> str:
    """Returns why equal trials of a study are run again; empty text: one of them is enough. `sends_code`: whether code is to be added."""
    if job.code is None and not sends_code:
        return "no code goes along, so what a trial runs is not known by its hash"
    if job.data is not None and job.data.sha256 is None and "@sha256:" not in (job.data.dataset or ""):
        return f"job.data.dataset is {job.data.dataset}, whose content is not known by its hash; write NAME@sha256:…"
    if job.resume_from is not None:
        return f"job.resume_from is {job.resume_from}, whose newest checkpoint may be another one each time"
    return ""


def equal_trial(entry: StudyEntry, values: Mapping[str, Value]) -> Trial | None:
    """Returns the complete trial whose values a new one with these parameters would have; None: it has to run."""
    if not entry.spec.cache or why_run_again(entry.spec.job):
        return None
    return next((trial for trial in entry.trials if trial.state is TrialState.COMPLETE and _equal(trial.parameters, values)), None)


def why_nothing_new(entry: StudyEntry) -> str:
    """Returns why a study ends whose sampler suggests what was tried already, again and again; empty text: it does not."""
    most = max(LEAST_COPIES, COPIES_PER_PARALLEL * entry.spec.parallel)
    newest = entry.trials[-most:]
    if len(newest) < most or not all(_is_copy(entry, trial) for trial in reversed(newest)):
        return ""
    return f"the values of its last {most} trials had been tried already; widen `space`, or set `cache: false` to run them again"


def _is_copy(entry: StudyEntry, trial: Trial) -> bool:
    """Whether its job is another trial's: one of its own is named by its number."""
    return trial.job_id != trial_job_id(entry.project, entry.study, trial.number, trial.submission)


def _equal(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether jobs get the same hyperparameters: 1 and 1.0 are two."""
    return one == other and all(type(value) is type(other[name]) and same_value(value, other[name]) for name, value in one.items())
