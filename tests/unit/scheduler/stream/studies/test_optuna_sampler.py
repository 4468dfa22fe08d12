"""Suggestions: what Optuna's own study in memory would give, in any process, for any space."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest

from tests.support.told_trials import CONDITIONAL, SPACE, loss, run, study_spec
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.events.model.study_space import Value
from trainhouse.scheduler.core.studies.told import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_sampler import sampler_seed, suggest

pytestmark = pytest.mark.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
ALL = ("tpe", "random", "qmc", "cmaes", "gp", "nsgaii", "grid")
COUNTED: dict[str, dict[str, Any]] = {"a": {"low": 1, "high": 4, "type": "int"}, "b": {"choices": ["x", "y", 1, True]}}
MIXED = SPACE | {"optimizer": {"choices": ["adam", "sgd", None, 2]}}


def values_of(spec: StudySpec, told: list[ToldTrial], number: int) -> dict[str, Value]:
    """Suggested values; a failure fails the test."""
    suggestion = suggest(spec, told, number)
    assert not suggestion.failure and not suggestion.exhausted, suggestion
    return suggestion.values


def ask(study: optuna.Study, spec: StudySpec) -> dict[str, Any]:
    """Values that Optuna itself suggests, by its public calls for users."""
    trial = study.ask()
    values: dict[str, Any] = {}
    for name, each in spec.space.items():
        if any(values.get(other, object()) not in among for other, among in each.when.items()):
            continue
        if each.choices:
            values[name] = trial.suggest_categorical(name, each.choices)
        elif each.type == "int":
            values[name] = trial.suggest_int(name, int(each.low or 0), int(each.high or 0), log=each.log, step=int(each.step or 1))
        else:
            values[name] = trial.suggest_float(name, each.low or 0.0, each.high or 0.0, log=each.log, step=each.step)
    return values


def optunas_sampler(spec: StudySpec, seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler with the settings that a user would give it."""
    match spec.sampler.name:
        case "random":
            return optuna.samplers.RandomSampler(seed=seed)
        case "gp":
            return optuna.samplers.GPSampler(seed=seed)
        case "cmaes":
            return optuna.samplers.CmaEsSampler(seed=seed)
        case "nsgaii":
            return optuna.samplers.NSGAIISampler(seed=seed, population_size=10)
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether values are the same but for the last digit of a number on a step."""
    return ours.keys() == theirs.keys() and all(map(_same, ours.values(), (theirs[name] for name in ours)))


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (math.isclose(one, other, rel_tol=1e-12) if isinstance(one, float) else one == other)


@pytest.mark.parametrize(
    ("sampler", "space", "metrics", "trials"),
    [
        ("tpe", MIXED, 1, 30),
        ("tpe", CONDITIONAL, 1, 30),
        ("tpe", SPACE, 2, 30),
        ("random", MIXED, 1, 5),
        ("gp", MIXED, 1, 13),
        ("cmaes", SPACE, 1, 40),
        ("cmaes", MIXED, 1, 20),
        ("nsgaii", MIXED, 2, 35),
        ("nsgaii", CONDITIONAL, 1, 35),
    ],
)
def test_suggests_as_optunas_own_study_that_ran_the_trials(sampler: str, space: dict[str, Any], metrics: int, trials: int) -> None:
    spec = study_spec(space, sampler, metrics, seed=7, **({"startup": 10} if sampler == "nsgaii" else {}))
    directions = ["minimize" if metric.mode == "min" else "maximize" for metric in spec.metrics]
    study = optuna.create_study(directions=directions)
    told: list[ToldTrial] = []
    differing = []
    for number in range(trials):
        ours = values_of(spec, told, number)
        study.sampler = optunas_sampler(spec, sampler_seed(7, number))
        theirs = ask(study, spec)
        if not same(ours, theirs):
            differing.append((number, ours, theirs))
        result = tuple(loss(theirs) * (index + 1) * (-1) ** index for index in range(metrics))
        study.tell(number, result)
        told.append(ToldTrial(number, theirs, TrialState.COMPLETE, result, ()))
    assert differing == []


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_grid_gives_each_point_once_and_is_then_exhausted(parallel: int) -> None:
    spec = study_spec(COUNTED, "grid", seed=3)
    told: list[ToldTrial] = []
    points = []
    for number in range(16):
        points.append(values_of(spec, told[: number - number % parallel], number))
        told.append(ToldTrial(number, points[-1], TrialState.FAILED if number % 2 else TrialState.COMPLETE, None, ()))
    assert sorted(map(repr, points)) == sorted(repr({"a": a, "b": b}) for a in range(1, 5) for b in ("x", "y", 1, True))
    assert points != sorted(points, key=repr)
    assert points != [values_of(study_spec(COUNTED, "grid", seed=4), told, number) for number in range(16)]
    after = suggest(spec, told, 16)
    assert after.exhausted and not after.values and not after.failure and after.versions.optuna


def test_points_of_a_grid_that_the_spec_names_come_once() -> None:
    enqueue = [{"a": 2, "b": True}, {"b": "x"}, {"a": 2, "b": True}, {}]
    spec = study_spec(COUNTED, "grid", enqueue=enqueue)
    points = [values_of(spec, [], number) for number in range(17)]
    assert points[0] == {"a": 2, "b": True} and points[0]["b"] is True
    assert points[1]["b"] == "x"
    assert points[2] == points[0]
    rest = points[:2] + points[3:]
    assert sorted(map(repr, rest)) == sorted(repr({"a": a, "b": b}) for a in range(1, 5) for b in ("x", "y", 1, True))
    assert suggest(spec, [], 17).exhausted


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "cmaes", "gp", "nsgaii"])
def test_values_that_the_spec_names_are_fixed_and_the_others_suggested(sampler: str) -> None:
    spec = study_spec(SPACE, sampler, enqueue=[{"lr": 0.01, "width": 32}, {}, {"depth": 3}, {"lr": 2.0}, {"width": 17}])
    told = run(spec, 3, values_of)
    assert (told[0].values["lr"], told[0].values["width"]) == (0.01, 32)
    assert [trial.values.keys() for trial in told] == [SPACE.keys()] * 3
    assert told[2].values["depth"] == 3
    assert suggest(spec, told, 3).failure == "enqueue.3: lr = 2.0 is not between 1e-05 and 1.0"
    assert suggest(spec, told, 4).failure == "enqueue.4: width = 17 is not on its step: the nearest value is 16"
