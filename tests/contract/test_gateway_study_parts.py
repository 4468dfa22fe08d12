"""Parts of a study over the gateway, whose tables are real: history, sample, rungs, importance, orders of trials."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from math import log10
from typing import Any

import numpy as np
import pytest

from tests.support.gateway_world import World
from tests.support.study_book import StudyBook
from tests.support.study_story import Story, both, spec_of, story
from trainhouse.events.model.study_decisions import TrialEnded, TrialStarted, TrialState, TrialStopping
from trainhouse.gateway.studies.trial_importance import Importances

ROUTE = "/v1/hpo/studies"
PARTS = ("history", "sample", "rungs", "importance", "trials")


@pytest.fixture(scope="module")
def whole(gateway_world: World) -> Story:
    """The story of six trials."""
    told = story("vision", "parts")
    StudyBook(gateway_world.tables).publish(list(both(told)))
    return told


@pytest.fixture(scope="module")
def wide(gateway_world: World) -> Story:
    """Forty complete trials, the loss of which follows from lr alone, and one without a number."""
    metrics = [{"name": "val_loss"}, {"name": "speed", "mode": "max"}]
    told = Story("vision", "wide", spec_of("vision", budget={"trials": 41}, metrics=metrics, early_stopping={"name": "none"}))
    told.begin()
    rng = np.random.default_rng(5)
    for trial in range(41):
        lr = float(10 ** rng.uniform(-4, -1))
        told.start(trial, lr, ["adam", "sgd"][int(rng.integers(2))])
        values = {"val_loss": (log10(lr) + 2) ** 2 if trial < 40 else float("nan"), "speed": float(trial)}
        told.decide(TrialEnded, trial=trial, state=TrialState.COMPLETE, values=values, device_s=10.0)
    StudyBook(gateway_world.tables).publish([*told.decisions, told.status(trials={TrialState.COMPLETE: 41}, device_s=410.0)])
    return told


@pytest.fixture
def tight(gateway_world: World) -> Iterator[None]:
    """Importance that may take a hundredth of a second."""
    before, gateway_world.gateway.importances = gateway_world.gateway.importances, Importances(longest_s=0.01)
    yield
    gateway_world.gateway.importances = before


def got(world: World, path: str, projects: tuple[str, ...] = ("vision",), status: int = 200, **query: Any) -> Any:
    answer = world.client.get(f"{ROUTE}{path}", params={"project": "vision"} | query, headers=world.token("vic", "viewer", list(projects)))
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_history_has_each_trial_that_ended_with_a_value_and_the_best_so_far(gateway_world: World, whole: Story) -> None:
    assert got(gateway_world, "/parts/history") == {
        "metric": "val_loss",
        "mode": "min",
        "ended": 3,
        "width": 1,
        "place": [1, 2, 3],
        "trial": [0, 1, 2],
        "least": [0.4, 0.5, 0.9],
        "greatest": [0.4, 0.5, 0.9],
        "mean": [0.4, 0.5, 0.9],
        "best": [0.4, 0.4, 0.4],
    }


def test_a_long_history_is_put_together_by_the_metrics_mode(gateway_world: World, wide: Story) -> None:
    found = got(gateway_world, "/wide/history", metric="speed", points=10)
    assert (found["mode"], found["ended"], found["width"], found["place"]) == ("max", 41, 5, [1, 6, 11, 16, 21, 26, 31, 36, 41])
    assert found["best"] == [4.0, 9.0, 14.0, 19.0, 24.0, 29.0, 34.0, 39.0, 40.0] and found["trial"] == [4, 9, 14, 19, 24, 29, 34, 39, 40]
    assert (found["least"][0], found["greatest"][0], found["mean"][0]) == (0.0, 4.0, 2.0)
    assert got(gateway_world, "/wide/history")["ended"] == 40, "what is no number is no value"
    assert "val_loss, speed" in got(gateway_world, "/wide/history", status=422, metric="loss")["detail"]


def test_the_sample_has_the_best_trials_whatever_its_size(gateway_world: World, wide: Story, whole: Story) -> None:
    found = got(gateway_world, "/wide/sample", limit=10)
    assert (len(found["items"]), found["total"]) == (10, 40)
    losses = sorted(row["value"] for row in got(gateway_world, "/wide/trials", limit=1000)["items"] if row["value"] is not None)
    assert sorted(row["value"] for row in found["items"])[:2] == losses[:2]
    assert got(gateway_world, "/wide/sample", limit=10) == found, "the same each time"
    whole_sample = got(gateway_world, "/parts/sample")
    assert [row["trial"] for row in whole_sample["items"]] == [0, 1, 2] and whole_sample["items"][0]["best"] is True


def test_rungs_say_which_trials_reached_them_and_which_ended_there(gateway_world: World, whole: Story) -> None:
    found = got(gateway_world, "/parts/rungs")
    assert found["rungs"] == [
        {"rung": 0, "step": 10, "reached": 4, "stopped": 1, "best": 0.65, "median": 0.8},
        {"rung": 1, "step": 30, "reached": 2, "stopped": 0, "best": 0.4, "median": 0.5},
    ], "trial 1 was to end at step 10, but its job had succeeded"
    assert found["trials"] == [
        {"trial": 0, "state": "COMPLETE", "values": [0.7, 0.4]},
        {"trial": 1, "state": "COMPLETE", "values": [0.8, 0.5]},
        {"trial": 2, "state": "STOPPED", "values": [0.9]},
        {"trial": 4, "state": "RUNNING", "values": [0.65]},
    ]
    assert found["total"] == 4


def test_a_value_beyond_a_rung_is_the_trials_value_at_it(gateway_world: World) -> None:
    told = Story("vision", "skips", spec_of("vision"))
    told.begin()
    told.start(0, 0.01)
    for step, value in ((4, 0.9), (35, 0.7), (60, 0.6)):
        told.value(0, step, value)
    told.decide(TrialStopping, trial=0, job_id=told.job_id(0), early=True, step=35, reason="asha")
    StudyBook(gateway_world.tables).publish([*told.decisions, told.status()])
    found = got(gateway_world, "/skips/rungs")
    assert [(rung["step"], rung["reached"], rung["stopped"], rung["best"]) for rung in found["rungs"]] == [(10, 1, 0, 0.7), (30, 1, 1, 0.7)]
    assert found["trials"] == [{"trial": 0, "state": "STOPPED", "values": [0.7, 0.7]}]


def test_importance_is_optunas_and_says_why_there_is_none(gateway_world: World, wide: Story, whole: Story) -> None:
    import optuna

    found = got(gateway_world, "/wide/importance")
    assert (found["trials"], found["of"], found["reason"], found["left_out"]) == (40, 40, "", ["nesterov"])
    assert [one["parameter"] for one in found["items"]] == ["lr", "opt"] and found["items"][0]["importance"] > 0.8
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    distributions = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 0.1, log=True),
        "opt": optuna.distributions.CategoricalDistribution(["adam", "sgd"]),
    }
    started = [each for each in wide.decisions if isinstance(each, TrialStarted)][:40]
    for each in started:
        params = {name: each.values[name] for name in distributions}
        value = (log10(float(params["lr"])) + 2) ** 2  # type: ignore[arg-type]
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    own = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    assert {one["parameter"]: one["importance"] for one in found["items"]} == pytest.approx(own, abs=1e-4)
    few = got(gateway_world, "/parts/importance")
    assert (few["items"], few["trials"]) == ([], 2) and "it takes 10 complete trials" in few["reason"]


def test_importance_that_takes_too_long_is_ended(gateway_world: World, wide: Story, tight: None) -> None:
    assert "took longer than 0.01 s for 40 trials" in got(gateway_world, "/wide/importance")["reason"]


def test_the_gateway_starts_without_optuna() -> None:
    script = "import sys, trainhouse.gateway.app; print([name for name in sys.modules if name.split('.')[0] in ('optuna', 'sklearn')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("order", ["number", "newest", "best"])
def test_trials_come_in_the_order_that_is_asked_for(gateway_world: World, wide: Story, order: str) -> None:
    found: list[Any] = []
    cursor = None
    while True:
        page = got(gateway_world, "/wide/trials", order=order, limit=7, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    numbers = [row["trial"] for row in found]
    if order == "best":
        values = [row["value"] for row in found]
        assert values[:-1] == sorted(values[:-1]) and values[-1] is None and sorted(numbers) == list(range(41))
    else:
        assert numbers == (list(range(41)) if order == "number" else list(range(41))[::-1])


def test_another_projects_study_has_no_parts(gateway_world: World, whole: Story) -> None:
    for part in PARTS:
        assert got(gateway_world, f"/parts/{part}", ("speech",), status=404)["title"] == "Not found"
        assert got(gateway_world, f"/parts/{part}", status=404, project="speech")["title"] == "Not found"
