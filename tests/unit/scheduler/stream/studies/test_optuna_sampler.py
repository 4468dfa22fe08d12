"""Suggestions: what Optuna's own study in memory would give, in any process, for any space."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState as OptunaState
from optuna.trial import create_trial

from tests.support.profiles import examples
from tests.support.told_trials import CHOICES, CONDITIONAL, SPACE, loss, run, study_spec
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.events.model.study_space import Value
from trainhouse.events.model.study_values import value_fault
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies import suggestion_memory
from trainhouse.scheduler.stream.studies.optuna_sampler import sampler_seed, suggest
from trainhouse.scheduler.stream.studies.suggestion_memory import _MEMORIES, MOST_STUDIES

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
    spec = study_spec(SPACE, sampler, enqueue=[{"lr": 0.01, "width": 32}, {}, {"depth": 3}])
    told = run(spec, 3, values_of)
    assert (told[0].values["lr"], told[0].values["width"]) == (0.01, 32)
    assert [trial.values.keys() for trial in told] == [SPACE.keys()] * 3
    assert told[2].values["depth"] == 3


STATES = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED, TrialState.CANCELLED, TrialState.COMPLETE, TrialState.STOPPED)


def mixed_states(number: int) -> TrialState:
    """States of 40 trials, of which the last four are open."""
    return STATES[number % len(STATES)] if number < 36 else (TrialState.RUNNING, TrialState.WAITING)[number % 2]


def added(trial: ToldTrial, spec: StudySpec, as_pruned: bool) -> optuna.trial.FrozenTrial:
    """The trial by Optuna's public call, with its checks."""
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for name in trial.values:
        each = spec.space[name]
        if each.choices:
            distributions[name] = optuna.distributions.CategoricalDistribution(each.choices)
        elif each.type == "int":
            distributions[name] = optuna.distributions.IntDistribution(
                int(each.low or 0), int(each.high or 0), log=each.log, step=int(each.step or 1)
            )
        else:
            distributions[name] = optuna.distributions.FloatDistribution(each.low or 0.0, each.high or 0.0, log=each.log, step=each.step)
    state = {
        TrialState.COMPLETE: OptunaState.COMPLETE,
        TrialState.STOPPED: OptunaState.PRUNED if as_pruned else OptunaState.COMPLETE,
        TrialState.RUNNING: OptunaState.RUNNING,
        TrialState.WAITING: OptunaState.RUNNING,
    }.get(trial.state, OptunaState.FAIL)
    return create_trial(
        state=state,
        params=dict(trial.values),
        distributions=distributions,
        values=trial.objectives if state is OptunaState.COMPLETE else None,
        intermediate_values=dict(trial.curve),
    )


@pytest.mark.parametrize(("sampler", "space"), [("tpe", MIXED), ("tpe", CONDITIONAL), ("gp", SPACE), ("nsgaii", SPACE)])
def test_states_of_trials_count_as_optunas_own(sampler: str, space: dict[str, Any]) -> None:
    spec = study_spec(space, sampler, seed=5)
    told = run(study_spec(space, "random", seed=5), 40, values_of, mixed_states)
    study = optuna.create_study(sampler=optunas_sampler(spec, sampler_seed(5, 40)))
    study.add_trials([added(trial, spec, sampler == "tpe") for trial in told])
    ours = values_of(spec, told, 40)
    assert same(ours, ask(study, spec))
    # The order in which they ended is nothing to a sampler that has no generations.
    assert ours == values_of(spec, told[::-1], 40)
    if sampler == "tpe" and space is MIXED:
        ended = [trial for trial in told if trial.state.final]
        assert ours != values_of(spec, ended, 40), "trials that run count in"


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp", "nsgaii"])
def test_values_that_are_no_numbers_count_as_failed(sampler: str) -> None:
    spec = study_spec(SPACE, sampler)
    told = run(study_spec(SPACE, "random"), 14, values_of)
    for value in (math.nan, math.inf, -math.inf):
        odd = ToldTrial(3, told[3].values, TrialState.COMPLETE, (value,), ((1, value),))
        failed = ToldTrial(3, told[3].values, TrialState.FAILED, None, ())
        assert values_of(spec, [*told[:3], odd, *told[4:]], 14) == values_of(spec, [*told[:3], failed, *told[4:]], 14)
    stopped = ToldTrial(3, told[3].values, TrialState.STOPPED, (math.nan,), ((1, math.nan),))
    assert values_of(spec, [*told[:3], stopped, *told[4:]], 14)


def test_a_quasi_random_sequence_is_optunas_own_from_its_first_point() -> None:
    spec = study_spec(MIXED, "qmc", seed=9)
    study = optuna.create_study()
    numbers = [name for name in SPACE if name != "optimizer"]
    ours = [{name: values_of(spec, [], number)[name] for name in numbers} for number in range(8)]
    for number in range(9):
        study.sampler = optuna.samplers.QMCSampler(scramble=True, seed=9)
        theirs = ask(study, spec)
        study.tell(number, 1.0)
        if number > 0:  # Optuna draws the first trial at random, to see the space.
            assert same(ours[number - 1], {name: theirs[name] for name in numbers})
    assert len({values_of(spec, [], number)["optimizer"] for number in range(20)}) == 4


def test_choices_keep_their_types() -> None:
    spec = study_spec({"x": CHOICES}, "tpe")
    told = run(spec, 60, values_of)
    assert {(type(trial.values["x"]), trial.values["x"]) for trial in told} == {(type(each), each) for each in CHOICES["choices"]}


def test_a_trial_with_values_of_another_space_is_a_failure_with_its_reason() -> None:
    told = [ToldTrial(number, {"x": "lion"}, TrialState.COMPLETE, (1.0,), ()) for number in range(12)]
    suggestion = suggest(study_spec({"x": CHOICES}), told, 12)
    assert suggestion.failure == "sampler tpe: ValueError: 'lion' is none of the choices"
    assert suggestion.versions.optuna == optuna.__version__ and not suggestion.values


def test_warnings_that_are_errors_change_nothing() -> None:
    spec = study_spec(MIXED, seed=2)
    told = run(spec, 15, values_of)
    expected = values_of(spec, told, 15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values_of(spec, told, 15) == expected


SCRIPT = """
import json, sys
from tests.support.told_trials import CONDITIONAL, SPACE, run, study_spec
from trainhouse.scheduler.stream.studies.optuna_sampler import suggest
assert "optuna" not in sys.modules and "torch" not in sys.modules
values = lambda spec, told, number: suggest(spec, told, number).values
found = []
for sampler, space in [("tpe", CONDITIONAL), ("random", CONDITIONAL), ("qmc", SPACE), ("cmaes", SPACE), ("nsgaii", CONDITIONAL)]:
    spec = study_spec(space, sampler, seed=3, startup=4)
    told = run(spec, 24, values)
    found.append([dict(trial.values) for trial in told])
assert "torch" not in sys.modules
spec = study_spec(SPACE, "gp", seed=3, startup=4)
found.append(values(spec, run(study_spec(SPACE, "random"), 6, values), 6))
print(json.dumps(found))
"""


def test_other_processes_give_the_same_with_other_hashes() -> None:
    answers = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsgaii"])
def test_earlier_suggestions_change_nothing(sampler: str) -> None:
    """Whole histories, others of the same space in between, and trials that end late: as with an empty memory."""
    spec = study_spec(SPACE, sampler, seed=1, startup=4)
    histories = [run(study_spec(SPACE, "random", seed=seed), 30, values_of) for seed in (1, 2)]
    late = [trial if trial.number != 9 else ToldTrial(9, trial.values, TrialState.RUNNING, None, ()) for trial in histories[0]]
    asked = [(history[:number], number) for number in (30, 12, 29, 30) for history in (histories[0], late, histories[1], late[::-1])]
    remembered = [values_of(spec, told, number) for told, number in asked]
    for (told, number), values in zip(asked, remembered, strict=True):
        _MEMORIES.clear()
        assert values_of(spec, told, number) == values


def test_memory_of_suggestions_is_bounded() -> None:
    for width in range(10):
        spec = study_spec({"x": {"low": 0, "high": 1 + width}})
        run(spec, 2, values_of)
    assert len(_MEMORIES) == MOST_STUDIES


def test_memory_of_suggestions_is_bounded_by_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggestion_memory, "MOST_VALUES", 12)
    for width in range(3):
        spec = study_spec({"x": {"low": 0, "high": 1 + width}, "y": {"low": 0, "high": 1}}, "tpe")
        run(spec, 9, values_of)
        assert sum(each.values for each in _MEMORIES.values()) <= 12 + 10


def test_named_points_of_a_large_grid_are_placed_at_once() -> None:
    space = {"a": {"low": 0.0, "high": 9999.9, "step": 0.1}, "b": {"choices": [1]}}
    named = [{"a": float(f"{9999.9 - number:.1f}")} for number in range(1000)]
    spec = study_spec(space, "grid", budget={"trials": 100_000}, enqueue=named)
    begun_s = time.process_time()
    assert values_of(spec, [], 0)["a"] == pytest.approx(9999.9) and values_of(spec, [], 999)["a"] == pytest.approx(9000.9)
    assert time.process_time() - begun_s < 10
    assert len({repr(values_of(spec, [], number)) for number in range(1000, 1010)}) == 10


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Parameters of any kind, extremes included."""
    kind = draw(st.sampled_from(["float", "int", "choices"]))
    if kind == "choices":
        values = st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(-1e300, 1e300), st.text(max_size=3), st.none())
        return {"choices": draw(st.lists(values, min_size=1, max_size=6))}
    if kind == "int":
        low, high = sorted(draw(st.tuples(*[st.integers(-(2**53), 2**53) | st.integers(-4, 4)] * 2)))
        if draw(st.booleans()) and low > 0:
            return {"low": low, "high": high, "type": "int", "log": True}
        return {"low": low, "high": high, "type": "int", "step": draw(st.integers(1, 5))}
    low, high = sorted(draw(st.tuples(*[st.floats(-1e300, 1e300) | st.floats(-2, 2)] * 2)))
    if draw(st.booleans()) and low > 0:
        return {"low": low, "high": high, "log": True}
    step = draw(st.none() | st.floats(1e-6, 10) | st.floats(1e-300, 1e300))
    return {"low": low, "high": high} | ({} if step is None else {"step": step})


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Spaces in which some parameters exist only beside choices of one before them."""
    space: dict[str, dict[str, Any]] = {}
    for index, parameter in enumerate(draw(st.lists(parameters(), min_size=1, max_size=5))):
        choosing = [name for name, each in space.items() if "choices" in each]
        if choosing and draw(st.booleans()):
            name = draw(st.sampled_from(choosing))
            parameter |= {"when": {name: draw(st.lists(st.sampled_from(space[name]["choices"]), min_size=1, max_size=2))}}
        space[f"p{index}"] = parameter
    return space


@given(spaces(), st.sampled_from(["tpe", "random", "nsgaii", "cmaes", "qmc"]), st.integers(0, 2**31 - 1), st.sampled_from([1, 2]))
@settings(max_examples=examples(150))
def test_values_are_of_the_space_whatever_it_is(space: dict[str, Any], sampler: str, seed: int, metrics: int) -> None:
    if sampler in ("cmaes", "qmc") and any("when" in each for each in space.values()):
        sampler = "tpe"
    spec = study_spec(space, sampler, 1 if sampler == "cmaes" else metrics, seed=seed, startup=3)
    told = run(spec, 12, values_of)
    for trial in told:
        for name, parameter in spec.space.items():
            there = all(trial.values.get(other, object()) in among for other, among in parameter.when.items())
            assert (name in trial.values) is there or any(True in among or 1 in among or 0 in among for among in parameter.when.values())
            if name not in trial.values:
                continue
            value = trial.values[name]
            assert value_fault(name, parameter, value) == ""
            if parameter.choices:
                assert any(type(each) is type(value) and each == value for each in parameter.choices)
                continue
            assert parameter.low is not None and parameter.high is not None
            assert type(value) is (int if parameter.type == "int" else float) and parameter.low <= value <= parameter.high
    assert values_of(spec, told, 12) == values_of(spec, told, 12)
