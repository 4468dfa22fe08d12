"""Suggestions of a study that knows trials from its start: those of Optuna's own study that was given the same by `add_trial`."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState as OptunaState
from optuna.trial import create_trial

from tests.support.study_requests import OF_STUDY, STUDY, Tuner
from tests.support.told_trials import CONDITIONAL, SPACE, loss, run, study_spec
from tests.unit.scheduler.stream.studies.test_optuna_sampler import MIXED, ask, optunas_sampler, same, values_of
from trainhouse.events import StudyBegun, TrialSuggested
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.known_from_start import known_from_start
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.core.studies.study_state import told, wanted
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_sampler import sampler_seed, suggest
from trainhouse.scheduler.stream.studies.parameter_values import distribution

pytestmark = pytest.mark.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def earlier(space: dict[str, Any], metrics: int, trials: int) -> list[dict[str, Any]]:
    """Known trials: points drawn at random, every third one of which ended early."""
    spec = study_spec(space, "random", metrics, seed=99)
    done = run(spec, trials, lambda *about: values_of(spec, *about[1:]))
    names = [each.name for each in spec.metrics]
    return [
        {
            "values": each.values,
            "metrics": dict(zip(names, each.objectives or (), strict=True)),
            "stopped_at": 9 if each.number % 3 == 2 and metrics == 1 else None,
        }
        for each in done
    ]


def optunas(name: str, spec: StudySpec) -> BaseDistribution:
    parameter = spec.space[name]
    return CategoricalDistribution(parameter.choices) if parameter.choices else distribution(parameter)


@pytest.mark.parametrize(
    ("sampler", "space", "metrics", "trials"),
    [
        ("tpe", MIXED, 1, 8),
        ("tpe", CONDITIONAL, 1, 8),
        ("tpe", SPACE, 2, 8),
        ("random", MIXED, 1, 3),
        ("gp", SPACE, 1, 3),
        ("cmaes", SPACE, 1, 25),
        ("nsgaii", MIXED, 2, 25),
    ],
)
def test_known_trials_count_as_those_that_optunas_study_is_given(sampler: str, space: dict[str, Any], metrics: int, trials: int) -> None:
    known = earlier(space, metrics, 14)
    spec = study_spec(
        space, sampler, metrics, seed=7, known=known, budget={"trials": 900}, **({"startup": 10} if sampler == "nsgaii" else {})
    )
    study = optuna.create_study(directions=["minimize" if metric.mode == "min" else "maximize" for metric in spec.metrics])
    for each in spec.known:
        pruned = each.stopped_at is not None and sampler == "tpe"
        params = {name: each.values[name] for name in spec.space if name in each.values}
        results = list(each.metrics.values())
        study.add_trial(
            create_trial(
                state=OptunaState.PRUNED if pruned else OptunaState.COMPLETE,
                params=params,
                distributions={name: optunas(name, spec) for name in params},
                values=None if pruned else results,
                intermediate_values={each.stopped_at: results[0]} if pruned else {},
            )
        )
    ours: list[ToldTrial] = []
    differing = []
    for number in range(trials):
        suggested = values_of(spec, [*known_from_start(spec), *ours], number)
        study.sampler = optunas_sampler(spec, sampler_seed(7, number))
        trial_number = len(study.trials)
        theirs = ask(study, spec)
        if not same(suggested, theirs):
            differing.append((number, suggested, theirs))
        result = tuple(loss(theirs) * (index + 1) * (-1) ** index for index in range(metrics))
        study.tell(trial_number, result)
        ours.append(ToldTrial(number, theirs, TrialState.COMPLETE, result, ()))
    assert differing == []
    if sampler in ("tpe", "gp"):
        without = study_spec(space, sampler, metrics, seed=7, budget={"trials": 900})
        assert values_of(without, [], 0) != values_of(spec, list(known_from_start(spec)), 0), "they count"


def test_the_tuner_has_them_in_its_journal_and_suggests_by_them_after_each_restart() -> None:
    known = [{"values": {"lr": 0.01 * (each + 1)}, "metrics": {"loss": float(each)}, "study": "old", "trial": each} for each in range(12)]
    tuner = Tuner()
    [begun, *_] = tuner.create(known=known, sampler={"name": "tpe"})
    assert isinstance(begun, StudyBegun) and [each.trial for each in begun.spec.known] == list(range(12))
    assert [each.number for each in told(tuner.study)] == list(range(-12, 0)) and not tuner.study.best
    [each] = wanted(tuner.state)
    assert (each.study, each.trial) == (STUDY, 0), "they are none of its own"
    values = suggest(tuner.study.spec, told(tuner.study), 0).values
    machine = TunerMachine()
    again = machine.load(machine.dump(tuner.state)).study(*OF_STUDY.values())
    assert again is not None and suggest(again.spec, told(again, each.told), 0).values == values
    tuner.ask(TrialSuggested.model_validate(OF_STUDY | {"trial": 0, "told": each.told, "values": values}))
    tuner.succeed(0, 5.0)
    assert tuner.study.best == (0,), "a known trial is never the best of another study"
    assert [each.number for each in told(tuner.study)] == [*range(-12, 0), 0]
