"""What the tuner writes fits its topics, however large a study is, and one study does not keep up others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.study_requests import PROJECT, STUDY, Tuner, study_spec
from trainhouse.events import JobState, StudyCreated, StudyRequestRefused, StudyState, StudyStatus, StudyStopRequested, TrialEnded
from trainhouse.events.wire.topics import MAX_INPUT_BYTES, STUDIES, topic
from trainhouse.scheduler.core.studies.study_state import load_tuning

TWO = [{"name": "loss"}, {"name": "cost"}]
JOB = {"runtime": {"command": ["python", "train.py"]}, "resources": {"device_type": "cpu"}}


def texts(count: int) -> dict[str, Any]:
    return {f"p{number}": {"choices": [f"{number:04d}" * 256]} for number in range(count)}


def front(tuner: Tuner, costs: list[tuple[float, float]], space: dict[str, Any] | None = None, **changes: Any) -> None:
    """Trials that end one after another with two values each."""
    chosen = space or {"lr": {"low": 0.001, "high": 1.0}}
    tuner.create(space=chosen, metrics=TWO, parallel=1, budget={"trials": len(costs) + 1} | changes, job=JOB)
    values = {name: each["choices"][0] for name, each in chosen.items()} if space else {"lr": 0.1}
    for trial, (loss, cost) in enumerate(costs):
        tuner.suggest(values=values)
        tuner.log(trial, 1, loss, cost=cost)
        tuner.job(trial, JobState.SUCCEEDED)


def test_a_status_of_large_trials_fits_its_topic() -> None:
    tuner = Tuner()
    front(tuner, [(float(number), -float(number)) for number in range(70)], texts(40), wall_s=50.0)
    assert len([each for each in tuner.decisions if isinstance(each, TrialEnded)]) == 70
    assert tuner.study.best == tuple(range(70)), "all of the front are known"
    tuner.tick(60.0)
    sizes = [len(each.model_dump_json()) for each in tuner.decisions if isinstance(each, StudyStatus)]
    assert max(sizes) < topic(STUDIES).max_message_bytes // 2
    newest = [each for each in tuner.decisions if isinstance(each, StudyStatus)][-1]
    assert 2 <= len(newest.best) < 64, "as many as fit"


def test_a_front_that_is_longer_than_a_status_stays_right() -> None:
    tuner = Tuner()
    front(tuner, [(float(number), -float(number)) for number in range(70)] + [(35.5, -99.0), (68.5, -68.0)])
    assert tuner.study.best == (*range(36), 70), "70 beats those from 36 on; 71 is beaten by 68, which 70 beats"


def test_studies_whose_time_is_over_end_one_a_tick_and_without_delay() -> None:
    tuner = Tuner()
    for number in range(3):
        about = {"project": PROJECT, "study": f"s{number}", "user": "ada", "spec": study_spec(budget={"wall_s": 50.0})}
        tuner.ask(StudyCreated.model_validate(about))
    tuner.now_ms += 60_000
    for left in (2, 1, 0):
        assert tuner.machine.wakes_ms(tuner.state, tuner.now_ms) == tuner.now_ms + 1
        tuner.tick(0.001)
        assert len(tuner.state.studies) == left
    assert tuner.machine.wakes_ms(tuner.state, tuner.now_ms) is None


def test_a_study_that_drains_is_not_looked_at_again_and_again() -> None:
    tuner = Tuner()
    tuner.create(budget={"wall_s": 50.0})
    tuner.fill()
    tuner.tick(60.0)
    assert tuner.study.state is StudyState.DRAINING and tuner.machine.wakes_ms(tuner.state, tuner.now_ms) is None
    assert tuner.tick(1.0) == []


def test_a_study_whose_jobs_could_not_be_submitted_is_refused() -> None:
    tuner = Tuner()
    env = {f"V{number}": "x" * 1000 for number in range(256)}
    [refused] = tuner.create(job=JOB | {"runtime": {"command": ["python", "train.py", "y" * 10_000]}, "env": env})
    assert isinstance(refused, StudyRequestRefused) and f"may have {MAX_INPUT_BYTES - 8192}" in refused.reason
    assert not tuner.state.studies and tuner.state.names == {}


def test_a_name_has_no_slash_so_that_no_two_projects_have_one_study() -> None:
    for kind in (StudyCreated, StudyStopRequested):
        with pytest.raises(ValidationError, match="study"):
            kind.model_validate({"project": "team", "study": "vision/lr", "user": "ada", "spec": study_spec()})
    assert StudyStopRequested.model_validate({"project": "team/vision", "study": "lr"}).subject() == "team/vision/lr"


def test_values_at_a_rung_are_those_of_all_trials_also_after_a_restart() -> None:
    tuner = Tuner()
    tuner.create(parallel=4, budget={"trials": 4}, early_stopping={"name": "asha", "min_step": 10, "max_step": 90, "reduction": 3})
    tuner.fill()
    for trial, loss in enumerate((0.5, float("nan"), 0.3)):
        tuner.job(trial, JobState.RUNNING)
        tuner.log(trial, 10, loss)
        tuner.log(trial, 31, loss / 2)
    assert {rung: len(values) for rung, values in tuner.study.rungs.items()} == {0: 3, 1: 3}
    again = load_tuning(tuner.machine.dump(tuner.state)).study(PROJECT, STUDY)
    assert again is not None and repr(dict(again.rungs)) == repr(dict(tuner.study.rungs))
