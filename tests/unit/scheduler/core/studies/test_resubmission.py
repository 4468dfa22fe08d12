"""A trial whose job is refused for a rate or for the jobs that wait is submitted again, and has not failed."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.study_requests import OF_STUDY, PROJECT, Tuner, job_of
from trainhouse.events import (
    JobState,
    JobSubmitted,
    StudyPauseRequested,
    StudyResumeRequested,
    StudyStatus,
    StudyStopRequested,
    TrialEnded,
    TrialPutOff,
    TrialResubmitted,
    TrialState,
)
from trainhouse.scheduler.core.intake.bucket import Bucket
from trainhouse.scheduler.core.intake.passing_refusals import LEAST_PAUSE_S, MOST_PAUSE_S, beyond_queue, pause_s
from trainhouse.scheduler.core.intake.projects import EVERY_OTHER, rate_of, too_many
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.trial_jobs import trial_job_id


def rate_refusal(project: str = PROJECT) -> str:
    rule: Any = SimpleNamespace(
        project=SimpleNamespace(name=project, limits=SimpleNamespace(submissions_per_minute=6)), admission_partitions=1
    )
    rate = rate_of(rule)
    assert rate is not None
    return too_many(rule, rate, Bucket(0, 1_000), 1_000)


QUEUE = beyond_queue(PROJECT, "default", 5, 0)
LASTING = (
    "spec.pool: there is no pool gpu; known: default. Name one of them",
    "job study-lr-0 exists with another spec; these fields differ: user. Submit it under a new id",
    "spec.project: project vision is closed to ada",
    f"resume_from: project {PROJECT} has no job {rate_refusal()}",
)


@pytest.mark.parametrize("reason", [rate_refusal(), rate_refusal(EVERY_OTHER), QUEUE, beyond_queue("a b", "x y", 5, 3)])
def test_rates_and_bounds_of_the_queue_pass(reason: str) -> None:
    pauses = [pause_s(reason, refused) for refused in range(12)]
    assert pauses[0] is not None and pauses[0] >= LEAST_PAUSE_S and pauses[-1] == MOST_PAUSE_S
    assert pauses == sorted(pauses, key=lambda each: each or 0)


@pytest.mark.parametrize("reason", LASTING)
def test_all_other_refusals_last(reason: str) -> None:
    assert pause_s(reason, 0) is None
    tuner = Tuner()
    tuner.create()
    tuner.fill()
    [ended, *_] = tuner.job(0, JobState.REJECTED, reason)
    assert isinstance(ended, TrialEnded) and ended.state is TrialState.FAILED and ended.rejected


def put_off(**changes: Any) -> Tuner:
    tuner = Tuner()
    tuner.create(**changes)
    tuner.fill()
    [decided] = tuner.job(0, JobState.REJECTED, QUEUE)
    assert isinstance(decided, TrialPutOff) and decided.reason == QUEUE
    return tuner


def test_a_trial_is_submitted_again_after_the_pause_under_another_id() -> None:
    tuner = put_off(max_failed=0)
    assert tuner.study.trials[0].state is TrialState.WAITING and not tuner.study.counts.get(TrialState.FAILED)
    assert tuner.job(0, JobState.REJECTED, QUEUE) == [], "read twice, it counts once"
    due_ms = tuner.machine.wakes_ms(tuner.state, tuner.now_ms)
    assert due_ms is not None and due_ms >= tuner.now_ms + 1000 * LEAST_PAUSE_S
    assert tuner.tick() == []
    tuner.now_ms = due_ms
    [again] = tuner.tick()
    second = trial_job_id(PROJECT, tuner.study.study, 0, 1)
    assert isinstance(again, TrialResubmitted) and str(again.job_id) == str(second) != job_of(0)
    assert again.spec.hyperparameters == tuner.started()[0].spec.hyperparameters and again.spec_sha256 == again.spec.sha256()
    [_, effect] = TunerMachine().effects(1, tuner.now_ms, [], [again])
    assert isinstance(effect.event, JobSubmitted) and effect.event.job_id == second
    assert tuner.machine.wakes_ms(tuner.state, tuner.now_ms) is None
    assert tuner.job(0, JobState.REJECTED, QUEUE) == [], "that of the first job counts no more"
    tuner.job(0, JobState.RUNNING, job_id=second)
    assert tuner.study.trials[0].state is TrialState.RUNNING


def test_pauses_grow_and_no_other_trial_begins_meanwhile() -> None:
    tuner = put_off(parallel=3)
    assert tuner.suggest() == [], "what is refused now would be refused with another trial, too"
    pauses = []
    for submission in range(1, 4):
        due_ms = tuner.machine.wakes_ms(tuner.state, tuner.now_ms) or 0
        pauses.append(due_ms - tuner.now_ms)
        tuner.now_ms = due_ms
        tuner.tick()
        tuner.job(0, JobState.REJECTED, QUEUE, job_id=trial_job_id(PROJECT, tuner.study.study, 0, submission))
    assert pauses == sorted(set(pauses))


@pytest.mark.parametrize("end", ["stop", "wall"])
def test_a_study_that_ends_leaves_no_trial_without_a_job_open(end: str) -> None:
    tuner = put_off(parallel=1, budget={"wall_s": 5} if end == "wall" else {"trials": 6})
    assert tuner.machine.load(tuner.machine.dump(tuner.state)).studies == tuner.state.studies, "a snapshot has what was put off"
    decided = tuner.ask(StudyStopRequested.model_validate(OF_STUDY)) if end == "stop" else tuner.tick(6)
    assert [each.state for each in decided if isinstance(each, TrialEnded)] == [TrialState.CANCELLED]
    assert tuner.has_ended() and not tuner.cancelled()


def test_a_refusal_that_crosses_a_stop_is_no_failure() -> None:
    tuner = Tuner()
    tuner.create(parallel=1)
    tuner.fill()
    tuner.ask(StudyStopRequested.model_validate(OF_STUDY))
    decided = tuner.job(0, JobState.REJECTED, QUEUE)
    assert [each.state for each in decided if isinstance(each, TrialEnded)] == [TrialState.CANCELLED] and tuner.has_ended()


def test_many_trials_that_wait_end_with_one_status_together() -> None:
    tuner = Tuner()
    tuner.create(parallel=8, budget={"trials": 8})
    tuner.fill()
    for number in range(8):
        tuner.job(number, JobState.REJECTED, QUEUE)
    found = tuner.ask(StudyStopRequested(**OF_STUDY))
    assert [type(each) for each in found].count(TrialEnded) == 8
    assert [type(each) for each in found].count(StudyStatus) <= 3, "of a record that has a bound"


def test_a_paused_study_submits_nothing_again() -> None:
    tuner = put_off()
    due_ms = tuner.machine.wakes_ms(tuner.state, tuner.now_ms)
    assert due_ms is not None
    tuner.ask(StudyPauseRequested(**OF_STUDY))
    assert tuner.machine.wakes_ms(tuner.state, tuner.now_ms) is None
    tuner.now_ms = due_ms
    assert tuner.tick() == []
    resumed = [*tuner.ask(StudyResumeRequested(**OF_STUDY)), *tuner.tick()]
    assert any(isinstance(each, TrialResubmitted) for each in resumed)
