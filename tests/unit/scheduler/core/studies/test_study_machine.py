"""Tuner's machine: each request and observation, one at a time."""

from typing import Any

import pytest

from tests.support.study_requests import OF_STUDY, PROJECT, STUDY, Tuner, job_of, study_spec
from trainhouse.events import (
    AskedVia,
    CancelJob,
    Event,
    EventId,
    JobState,
    JobSubmitted,
    RequestedBy,
    StudyBegun,
    StudyChanged,
    StudyCreated,
    StudyPauseRequested,
    StudyRequestRefused,
    StudyResumeRequested,
    StudyState,
    StudyStatus,
    StudyStopRequested,
    TrialEnded,
    TrialStarted,
    TrialState,
    TrialStopping,
    TrialValueRecorded,
    envelope_of,
)
from trainhouse.events.wire.topics import JOBS, STUDIES, STUDY_HISTORY
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.study_state import MAX_OPEN, PROJECT_SHARE, USER_SHARE, told, wanted

ASHA = {"name": "asha", "min_step": 10, "max_step": 90, "reduction": 3}


def of(kind: type[Event], decisions: list[Event]) -> Any:
    [found] = [each for each in decisions if isinstance(each, kind)]
    return found


def refusal(decisions: list[Event]) -> str:
    return str(of(StudyRequestRefused, decisions).reason)


def test_a_study_begins_and_wants_as_many_trials_as_run_at_the_same_time() -> None:
    tuner = Tuner()
    begun = of(StudyBegun, tuner.create())
    assert (begun.number, begun.user, begun.subject()) == (1, "ada", "vision/lr")
    assert [(each.trial, each.told) for each in wanted(tuner.state)] == [(0, 1)]
    assert tuner.fill() == 2 and not wanted(tuner.state)
    assert [str(each.job_id) for each in tuner.started()] == [job_of(0), job_of(1)]


def test_a_trial_is_a_job_of_the_creator_with_the_values_among_its_hyperparameters() -> None:
    tuner = Tuner()
    by = RequestedBy(name="ada", via=AskedVia.GATEWAY, role="submitter")
    spec = study_spec(job=study_spec().job.model_dump(mode="json") | {"hyperparameters": {"epochs": 3}})
    tuner.ask(StudyCreated.model_validate(OF_STUDY | {"user": "x", "requested_by": by, "asked_as": "submitter", "spec": spec}))
    decided = tuner.suggest(0.25)
    effects = TunerMachine().effects(1, 0, [], decided)
    [job] = [each.event for each in effects if each.topic == JOBS]
    assert isinstance(job, JobSubmitted) and job.asked_as == "submitter"
    assert (job.spec.user, job.spec.project, job.spec.hyperparameters) == ("ada", PROJECT, {"epochs": 3, "lr": 0.25})
    assert job.spec.sha256() == tuner.study.trials[0].spec_sha256
    assert {each.topic for each in effects} == {JOBS, STUDY_HISTORY, STUDIES}
    assert len({each.event_id for each in effects}) == len(effects)


def test_a_request_counts_once_and_a_name_for_ever() -> None:
    tuner = Tuner()
    tuner.create("a")
    assert tuner.create("a") == []
    assert "is there already" in refusal(tuner.create("b"))
    tuner.ask(StudyStopRequested.model_validate(OF_STUDY))
    assert tuner.has_ended()
    assert "is there already" in refusal(tuner.create("c"))
    assert "has ended" in refusal(tuner.ask(StudyStopRequested.model_validate(OF_STUDY)))
    assert "has no study other" in refusal(tuner.ask(StudyStopRequested(project=PROJECT, study="other")))


def test_a_study_of_all_its_trials_ends_with_the_best_of_them() -> None:
    tuner = Tuner()
    tuner.create()
    for trial, loss in enumerate((0.5, float("nan"), 0.2, 0.3, 0.2, float("inf"))):
        tuner.fill()
        last = tuner.succeed(trial, loss)
    status = of(StudyStatus, [last[-2]])
    assert (status.state, [each.trial for each in status.best]) == (StudyState.ENDED, [2])
    assert status.trials == {TrialState.COMPLETE: 6} and status.device_s == 6.0
    assert tuner.has_ended() and not tuner.state.studies and not tuner.cancelled()
    assert tuner.fill() == 0


def test_a_metric_that_was_never_logged_fails_the_trial() -> None:
    tuner = Tuner()
    tuner.create()
    tuner.fill()
    ended = of(TrialEnded, tuner.job(0, JobState.SUCCEEDED, logged=("accuracy", "time")))
    assert ended.state is TrialState.FAILED
    assert ended.reason == 'metric "loss" was never logged; logged: accuracy, time'


def test_too_many_failures_end_the_study_and_cancel_what_runs_once() -> None:
    tuner = Tuner()
    tuner.create(parallel=3)
    for trial in range(3):
        tuner.fill()
        decided = tuner.job(trial, JobState.FAILED, "rank 0 exited with code 1")
    changed = of(StudyChanged, decided)
    assert changed.state is StudyState.DRAINING and "3 trials failed, more than max_failed = 2" in changed.reason
    assert tuner.cancelled() == [job_of(3), job_of(4)] and tuner.fill() == 0
    cancels = [each.event for each in TunerMachine().effects(1, 0, [], decided) if each.topic == JOBS]
    assert [str(each.job_id) for each in cancels if isinstance(each, CancelJob)] == [job_of(3), job_of(4)]
    tuner.job(3, JobState.CANCELLED)
    assert not tuner.has_ended()
    tuner.job(4, JobState.SUCCEEDED)
    assert tuner.has_ended() and tuner.cancelled() == [job_of(3), job_of(4)]


def test_first_jobs_that_are_all_refused_end_the_study() -> None:
    tuner = Tuner()
    tuner.create(max_failed=100)
    tuner.fill()
    tuner.job(0, JobState.REJECTED, "no pool has gpus")
    assert tuner.fill() == 0, "none begins until one was admitted"
    tuner.job(1, JobState.REJECTED, "no pool has gpus")
    assert tuner.has_ended() and len(tuner.started()) == 2


def test_one_that_was_admitted_lets_the_study_go_on() -> None:
    tuner = Tuner()
    tuner.create()
    tuner.fill()
    tuner.job(0, JobState.REJECTED)
    tuner.job(1, JobState.RUNNING)
    assert tuner.fill() == 1


def test_pause_resume_and_stop() -> None:
    tuner = Tuner()
    tuner.create()
    tuner.suggest()
    assert of(StudyChanged, tuner.ask(StudyPauseRequested.model_validate(OF_STUDY | {"user": "ada"}))).user == "ada"
    assert not wanted(tuner.state) and not tuner.cancelled()
    assert "only one that is RUNNING" in refusal(tuner.ask(StudyPauseRequested.model_validate(OF_STUDY)))
    tuner.ask(StudyResumeRequested.model_validate(OF_STUDY))
    assert tuner.fill() == 1
    assert "only one that is PAUSED" in refusal(tuner.ask(StudyResumeRequested.model_validate(OF_STUDY)))
    stopping = tuner.ask(StudyStopRequested.model_validate(OF_STUDY | {"reason": "good enough"}))
    assert [each.early for each in stopping if isinstance(each, TrialStopping)] == [False, False]
    tuner.job(0, JobState.CANCELLED)
    assert of(StudyChanged, tuner.job(1, JobState.CANCELLED)).reason == "good enough"
    assert [each.state for each in tuner.decisions if isinstance(each, TrialEnded)] == [TrialState.CANCELLED] * 2


def test_wall_time_ends_a_study_by_journal_time() -> None:
    tuner = Tuner()
    tuner.create(budget={"wall_s": 60})
    tuner.fill()
    assert tuner.machine.wakes_ms(tuner.state, tuner.now_ms) == tuner.now_ms + 60_000
    assert tuner.tick(59) == []
    tuner.tick(1)
    assert len(tuner.cancelled()) == 2 and tuner.machine.wakes_ms(tuner.state, tuner.now_ms) is None
    assert tuner.tick(1) == []


def test_device_seconds_count_those_of_running_trials() -> None:
    tuner = Tuner()
    tuner.create(budget={"device_s": 100})
    tuner.fill()
    tuner.job(0, JobState.RUNNING, device_s=1)
    tuner.job(1, JobState.RUNNING, device_s=40)
    assert not tuner.cancelled()
    tuner.job(0, JobState.RUNNING, device_s=60)
    assert len(tuner.cancelled()) == 2
    tuner.job(0, JobState.CANCELLED, device_s=61)
    ended = tuner.job(1, JobState.CANCELLED, device_s=42)
    assert of(StudyStatus, [ended[-2]]).device_s == 103 and tuner.has_ended()


def test_a_trial_that_is_not_among_the_best_at_a_rung_ends_early_and_its_value_counts() -> None:
    tuner = Tuner()
    tuner.create(parallel=6, early_stopping=ASHA)
    tuner.fill()
    for trial in range(3):
        tuner.job(trial, JobState.RUNNING)
    assert not any(isinstance(each, TrialStopping) for trial in (0, 1) for each in tuner.log(trial, 10, 1.0 - trial))
    stopping = of(TrialStopping, tuner.log(2, 12, 0.5))
    assert stopping.early and stopping.step == 12 and "asha" in stopping.reason
    tuner.log(2, 13, 0.4)
    ended = of(TrialEnded, tuner.job(2, JobState.CANCELLED))
    assert (ended.state, ended.values) == (TrialState.STOPPED, {"loss": 0.4})
    assert [each.curve for each in told(tuner.study) if each.number == 2] == [((10, 0.5),)]
    assert of(TrialEnded, tuner.job(1, JobState.CANCELLED)).state is TrialState.CANCELLED


def test_a_value_counts_once_and_never_goes_back() -> None:
    tuner = Tuner()
    tuner.create(early_stopping=ASHA)
    tuner.fill()
    recorded = of(TrialValueRecorded, tuner.log(0, 95, 0.5))
    assert recorded.rungs == (0, 1, 2)
    assert tuner.log(0, 95, 0.5) == [] and tuner.log(0, 94, 0.1) == []
    assert of(TrialValueRecorded, tuner.log(0, 95, 0.6, other=1.0)).values == {"loss": 0.6}
    assert of(TrialValueRecorded, tuner.log(0, 96, float("nan"))) and tuner.log(0, 96, float("nan")) == []


def test_what_is_told_is_as_it_was_after_a_decision() -> None:
    tuner = Tuner()
    tuner.create(early_stopping=ASHA)
    states = {}
    for trial in range(3):
        tuner.fill()
        tuner.log(trial, 10, 0.5)
        states[tuner.study.number] = told(tuner.study)
        tuner.job(trial, JobState.SUCCEEDED)
        states[tuner.study.number] = told(tuner.study)
    for number, seen in states.items():
        assert told(tuner.study, number) == seen
    assert len(told(tuner.study, 1)) == 0 < len(states)


def test_a_sampler_that_fails_or_has_no_other_point_ends_the_study() -> None:
    for changes, word in (({"failure": "no module optuna"}, "no module optuna"), ({"exhausted": True}, "every point")):
        tuner = Tuner()
        tuner.create()
        tuner.suggest()
        assert word in of(StudyChanged, tuner.suggest(**changes)).reason
        assert tuner.fill() == 0 and not tuner.cancelled()
        tuner.succeed(0, 0.5)
        assert tuner.has_ended()


def test_a_suggestion_for_another_trial_than_the_next_one_counts_for_nothing() -> None:
    tuner = Tuner()
    tuner.create()
    assert tuner.suggest(trial=1) == [] and tuner.suggest(told=99) == []
    assert tuner.fill() == 2
    tuner.succeed(0, 0.5)
    assert "no parameter" in of(StudyChanged, tuner.suggest(values={"momentum": 0.9})).reason


def test_studies_are_bounded_and_the_refusal_names_the_way_out() -> None:
    tuner = Tuner()
    for number in range(MAX_OPEN // PROJECT_SHARE):
        tuner.ask(StudyCreated(project=PROJECT, study=f"s{number}", spec=study_spec(), user=f"user-{number % USER_SHARE}"))
    assert "stop one" in refusal(tuner.create())
    assert of(StudyBegun, tuner.ask(StudyCreated(project="speech", study=STUDY, spec=study_spec())))
    job = study_spec().job.model_dump(mode="json") | {"runtime": {"command": ["true"]}}
    large = study_spec(job=job, space={f"x{n}": {"low": 0, "high": 1} for n in range(200)}, budget={"trials": 100_000})
    assert "budget.trials" in refusal(tuner.ask(StudyCreated(project="audio", study=STUDY, spec=large)))
    named = study_spec(job=study_spec().job.model_dump(mode="json") | {"project": "speech"})
    assert "leave job.project out" in refusal(tuner.ask(StudyCreated(project="audio", study=STUDY, spec=named)))
    labels = study_spec(job=study_spec().job.model_dump(mode="json") | {"labels": {f"l{n}": "x" for n in range(64)}})
    assert "no job can be made" in refusal(tuner.ask(StudyCreated(project="audio", study=STUDY, spec=labels)))


def test_one_user_has_a_share_of_a_projects_studies_and_of_their_values() -> None:
    tuner = Tuner()
    for number in range(MAX_OPEN // PROJECT_SHARE // USER_SHARE):
        assert of(StudyBegun, tuner.ask(StudyCreated(project=PROJECT, study=f"s{number}", spec=study_spec(), user="ada")))
    refused = refusal(tuner.create())
    assert "studies of ada in project vision have not ended" in refused and "`trainhouse study stop s0 --project vision`" in refused
    assert of(StudyBegun, tuner.ask(StudyCreated(project=PROJECT, study="own", spec=study_spec(), user="eve")))
    assert of(StudyBegun, tuner.ask(StudyCreated(project="speech", study="own", spec=study_spec(), user="ada")))
    tuner = Tuner()
    space = {"lr": {"low": 0.1, "high": 1.0}} | {f"x{number}": {"low": 0, "high": 1} for number in range(9)}
    assert of(StudyBegun, tuner.create(space=space, budget={"trials": 15_000}))
    asked = StudyCreated(project=PROJECT, study="more", spec=study_spec(space=space, budget={"trials": 15_000}), user="ada")
    assert "studies of ada in project vision have room for 50000" in refusal(tuner.ask(asked))
    assert of(StudyBegun, tuner.ask(asked.model_copy(update={"user": "eve"})))


def test_a_request_that_cannot_be_handled_is_refused_under_its_id() -> None:
    tuner = Tuner()
    ahead = tuner.now_ms + 10 * 86_400_000
    event = StudyCreated.model_validate(OF_STUDY | {"spec": study_spec()})
    envelope = envelope_of(event, id=EventId("x"), source="tests", now_ms=ahead)
    assert "two days ahead" in refusal(tuner.record([Input(1, envelope)]))
    refused = tuner.machine.after_refusal(tuner.state, envelope, "broken")
    assert isinstance(refused, StudyRequestRefused) and refused.request_id == "x"
    other = envelope_of(refused, id=EventId("y"), source="trainhouse/owner", now_ms=tuner.now_ms)
    assert of(StudyRequestRefused, tuner.record([Input(None, other)])).at_ms == tuner.now_ms


@pytest.mark.parametrize("loss", [0.5, float("nan"), float("-inf")])
def test_a_snapshot_is_read_back_as_it_was(loss: float) -> None:
    tuner = Tuner()
    space = {"b": {"choices": ["x", None, True, 2]}, "a": {"low": 0, "high": 1, "when": {"b": ["x"]}}}
    job = study_spec().job.model_dump(mode="json") | {"runtime": {"command": ["true"]}}
    tuner.create(space=space, early_stopping=ASHA, job=job)
    for trial in range(3):
        tuner.suggest(values={"a": 0.5, "b": "x"})
        tuner.log(trial, 100, loss)
        tuner.job(trial, JobState.SUCCEEDED)
    tuner.suggest(values={"b": True})
    data = tuner.machine.dump(tuner.state)
    again = tuner.machine.load(data)
    assert tuner.machine.dump(again) == data
    [entry] = again.studies.values()
    assert list(entry.spec.space) == ["b", "a"] and list(entry.trials[0].parameters) == ["b", "a"]
    assert repr(told(entry)) == repr(told(tuner.study))
    assert isinstance(tuner.decisions[-2], TrialStarted | StudyStatus)
