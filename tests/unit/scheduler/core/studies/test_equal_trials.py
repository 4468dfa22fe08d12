"""Trials that equal a complete one of their study: no job runs, and the value is that one's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.study_requests import OF_STUDY, Tuner, job_of, study_spec
from tests.support.trial_facts import facts_of
from trainhouse.events import JobState, JobSubmitted, StudyChanged, TrialEnded, TrialStarted, TrialState, TrialValueObserved
from trainhouse.events.model.study import EarlyStopping, Objective
from trainhouse.scheduler.core.studies.equal_trials import LEAST_COPIES, why_run_again
from trainhouse.scheduler.core.studies.stopping_what_if import decide_anew
from trainhouse.scheduler.core.studies.study_machine import TunerMachine

CODE = {"uri": "s3://code/a.tar.gz", "sha256": "a" * 64}
JOB: dict[str, Any] = {"runtime": {"command": ["python", "train.py"]}, "resources": {"device_type": "cpu"}, "code": CODE}


def begun(job: dict[str, Any] | None = None, **changes: Any) -> Tuner:
    """A tuner with a study whose first trial, at lr = 0.1, is complete with a loss of 0.5."""
    tuner = Tuner()
    tuner.create(job=job or JOB, parallel=1, **changes)
    tuner.suggest(0.1)
    tuner.succeed(0, 0.5, device_s=40.0)
    return tuner


def submitted(tuner: Tuner) -> list[str]:
    effects = (each for _, _, decisions in tuner.records for each in tuner.machine.effects(1, 0, [], decisions))
    return [str(each.event.job_id) for each in effects if isinstance(each.event, JobSubmitted)]


def test_a_trial_that_equals_a_complete_one_has_its_value_and_no_job() -> None:
    tuner = begun()
    found = tuner.suggest(0.1)
    [started] = [each for each in found if isinstance(each, TrialStarted)]
    [ended] = [each for each in found if isinstance(each, TrialEnded)]
    assert (started.trial, started.taken_from, str(started.job_id)) == (1, 0, job_of(0))
    assert (ended.trial, ended.state, ended.values, ended.device_s) == (1, TrialState.COMPLETE, {"loss": 0.5}, 0.0)
    assert ended.reason == "as trial 0: its values, code, data and seed are equal, so no job ran"
    assert submitted(tuner) == [job_of(0)]
    assert tuner.study.open == () and tuner.study.counts == {TrialState.COMPLETE: 2} and tuner.study.device_s == 40.0
    assert tuner.study.best == (0,) and tuner.study.told_trial(tuner.study.trials[1]).objectives == (0.5,)
    machine = TunerMachine()
    assert machine.dump(machine.load(machine.dump(tuner.state))) == machine.dump(tuner.state)
    tuner.suggest(0.2)
    assert submitted(tuner) == [job_of(0), job_of(2)], "another value runs"
    assert tuner.job(2, JobState.RUNNING)


def test_it_counts_as_a_trial_and_ends_the_study_with_it() -> None:
    tuner = begun(budget={"trials": 2})
    tuner.suggest(0.1)
    assert tuner.has_ended() and submitted(tuner) == [job_of(0)]


@pytest.mark.parametrize(
    ("job", "changes"),
    [
        (JOB, {"cache": False}),
        ({name: value for name, value in JOB.items() if name != "code"}, {}),
        (JOB | {"data": {"dataset": "digits@1.0.0"}}, {}),
        (JOB | {"resume_from": "base-1"}, {}),
    ],
)
def test_it_runs_where_it_is_asked_for_or_code_and_data_are_not_known_by_their_hashes(job: dict[str, Any], changes: Any) -> None:
    tuner = begun(job, **changes)
    tuner.suggest(0.1)
    assert submitted(tuner) == [job_of(0), job_of(1)]
    assert bool(why_run_again(study_spec(job=job).job)) is (not changes)


def test_data_by_its_hash_is_known() -> None:
    assert why_run_again(study_spec(job=JOB | {"data": {"dataset": f"digits@sha256:{'b' * 64}"}}).job) == ""
    assert why_run_again(study_spec(job=JOB | {"data": {"uri": "s3://data", "sha256": "b" * 64}}).job) == ""
    assert why_run_again(study_spec().job, sends_code=True) == ""
    assert "no code goes along" in why_run_again(study_spec().job)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.RUNNING, JobState.CANCELLED])
def test_a_trial_that_is_not_complete_gives_no_value(state: JobState) -> None:
    tuner = Tuner()
    tuner.create(job=JOB)
    tuner.suggest(0.1)
    tuner.log(0, 1, 0.5)
    tuner.job(0, state)
    tuner.suggest(0.1)
    assert submitted(tuner) == [job_of(0), job_of(1)]


def test_values_are_equal_by_type_and_all_of_them() -> None:
    tuner = Tuner()
    tuner.create(job=JOB, parallel=1, space={"lr": {"choices": [1, True, "1"]}}, budget={"trials": 9})
    for value, jobs in ((1, 1), (True, 2), ("1", 3), (1, 3), (True, 3)):
        trial = len(tuner.study.trials)
        tuner.suggest(value)
        assert len(submitted(tuner)) == jobs, value
        if tuner.study.open:
            tuner.succeed(trial, float(trial))
    assert [each.logged["loss"].value for each in tuner.study.trials] == [0.0, 1.0, 2.0, 0.0, 1.0]


def test_early_stopping_decided_anew_has_its_value() -> None:
    rule = EarlyStopping(min_step=1)
    tuner = begun(early_stopping=rule.model_dump(mode="json"))
    tuner.suggest(0.1)
    found = decide_anew([Objective(name="loss")], rule, facts_of(tuner.decisions))
    assert [(each.state, each.value, each.device_s) for each in found.trials] == [("COMPLETE", 0.5, 40.0), ("COMPLETE", 0.5, 0.0)]
    assert found.best == 0 and OF_STUDY["study"] == "lr"


def test_a_front_has_the_trial_that_ran_and_no_copy_of_it() -> None:
    tuner = Tuner()
    two = [{"name": "loss", "mode": "min"}, {"name": "size", "mode": "min"}]
    tuner.create(job=JOB, parallel=1, metrics=two, budget={"trials": 200})
    for lr, loss, size in ((0.1, 0.5, 2.0), (0.2, 1.0, 1.0)):
        number = len(tuner.study.trials)
        tuner.suggest(lr)
        tuner.ask(TrialValueObserved(**OF_STUDY, trial=number, job_id=job_of(number), step=1, values={"loss": loss, "size": size}))
        tuner.job(number, JobState.SUCCEEDED)
    for _ in range(70):
        tuner.suggest(0.1)
    assert tuner.study.best == (0, 1)


def test_a_study_whose_sampler_finds_nothing_new_ends() -> None:
    tuner = begun(budget={"device_s": 10_000.0})
    for _ in range(LEAST_COPIES - 1):
        tuner.suggest(0.1)
    assert not tuner.has_ended()
    tuner.suggest(0.1)
    assert tuner.has_ended()
    changed = next(each for each in tuner.decisions if isinstance(each, StudyChanged))
    assert f"its last {LEAST_COPIES} trials had been tried already" in changed.reason and "cache: false" in changed.reason
