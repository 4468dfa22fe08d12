"""Sampler of each name over the study in memory of what was told.

Holds: what Optuna's samplers keep between suggestions (CMA-ES its distribution, NSGA-II its generations, QMC its place in the sequence) is
made anew of what was told. Complete trials make up CMA-ES's and NSGA-II's generations in the order in which they were told.
"""

from collections.abc import Sequence
from math import log
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from trainhouse.events.model.study import SamplerName, StudySpec
from trainhouse.scheduler.core.studies.told import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_study import study_of
from trainhouse.scheduler.stream.studies.parameter_values import distribution

_POPULATION: Final = 50
_LEAST_POPULATION: Final = 2


def study_for(spec: StudySpec, told: Sequence[ToldTrial], seed: int, number: int) -> optuna.Study:
    """Returns the study that has trial `number` suggested next."""
    startup: dict[str, int] = {} if spec.sampler.startup_trials is None else {"n_startup_trials": spec.sampler.startup_trials}
    match spec.sampler.name:
        case SamplerName.RANDOM:
            return study_of(spec, RandomSampler(seed=seed), ())
        case SamplerName.QMC:
            return study_of(spec, _SequenceSampler(spec, seed, number), ())
        case SamplerName.GP:
            return study_of(spec, GPSampler(seed=seed, **startup), told)
        case SamplerName.CMAES:
            return _cmaes_study(spec, told, seed)
        case SamplerName.NSGAII:
            return _nsgaii_study(spec, told, seed)
        case _:
            return study_of(spec, TPESampler(seed=seed, constant_liar=True, **startup), told)


class _SequenceSampler(QMCSampler):
    """Quasi-random sequence of the whole study, at the place of one trial. Choices are drawn at random, as Optuna's own has it."""

    def __init__(self, spec: StudySpec, seed: int, place: int) -> None:
        super().__init__(scramble=True, seed=spec.seed, independent_sampler=RandomSampler(seed=seed))
        self._place = place
        drawn = {name: distribution(parameter) for name, parameter in spec.space.items()}
        # Optuna's own takes the space of the first trial, which is therefore drawn at random; ours is known.
        self._drawn: dict[str, BaseDistribution] = {
            name: each for name, each in sorted(drawn.items()) if not isinstance(each, CategoricalDistribution) and not each.single()
        }

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._drawn

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:
        return self._place


def _cmaes_study(spec: StudySpec, told: Sequence[ToldTrial], seed: int) -> optuna.Study:
    startup = 1 if spec.sampler.startup_trials is None else spec.sampler.startup_trials
    drawn = [each for each in map(distribution, spec.space.values()) if not isinstance(each, CategoricalDistribution) and not each.single()]
    # Population of Hansen 2016, which the library takes too; named, since generations are made up of it here.
    size = 4 + int(3 * log(len(drawn))) if drawn else 1

    def sampler(startup: int = 1) -> CmaEsSampler:
        return CmaEsSampler(seed=seed, n_startup_trials=startup, popsize=size)

    complete = [trial for trial in told if trial.result is not None][startup:]
    generation = {trial.number: place // size for place, trial in enumerate(complete)}
    attributes: dict[int, dict[str, Any]] = {number: {"cma:generation": at} for number, at in generation.items()}
    optimizer: dict[str, Any] = {}
    for place, group in enumerate(_groups(complete, size)):
        # The last trial of a generation has the distribution that the generation began with; Optuna's own step makes the next one of it.
        before = {trial.number: {"cma:generation": place} for trial in group}
        before[max(before)] |= optimizer
        step = study_of(spec, sampler(), group, before)
        _ask_all(spec, step)
        optimizer = {key: value for key, value in step.trials[-1].system_attrs.items() if key.startswith("cma:optimizer")}
    if optimizer:
        attributes[max(attributes)] |= optimizer
    return study_of(spec, sampler(startup), told, attributes)


def _ask_all(spec: StudySpec, study: optuna.Study) -> None:
    study.ask({name: distribution(parameter) for name, parameter in spec.space.items()})


def _nsgaii_study(spec: StudySpec, told: Sequence[ToldTrial], seed: int) -> optuna.Study:
    size = max(_LEAST_POPULATION, spec.sampler.startup_trials or _POPULATION)
    sampler = NSGAIISampler(seed=seed, population_size=size)
    complete = [trial for trial in told if trial.result is not None]
    parents: list[ToldTrial] = []
    groups = _groups(complete, size)
    for group in groups:
        parents = _selected(spec, sampler, group, parents)
    attributes = {trial.number: {sampler._get_generation_key(): place // size} for place, trial in enumerate(complete)}
    study = study_of(spec, sampler, told, attributes)
    chosen = {trial.number for trial in parents}
    ids = [place for place, number in enumerate(sorted(trial.number for trial in told)) if number in chosen]
    study._storage.set_study_system_attr(study._study_id, f"{sampler._get_parent_cache_key_prefix()}{len(groups)}", ids)
    return study


def _groups(complete: Sequence[ToldTrial], size: int) -> list[Sequence[ToldTrial]]:
    """Returns the generations that further trials followed: what comes of the newest one is worked out by the suggestion itself, as
    Optuna has it."""
    return [complete[first : first + size] for first in range(0, (len(complete) - 1) // size * size, size)]


def _selected(spec: StudySpec, sampler: NSGAIISampler, population: Sequence[ToldTrial], parents: Sequence[ToldTrial]) -> list[ToldTrial]:
    """Returns the trials that Optuna selects of a generation and of its parents."""
    both = [*population, *parents]
    numbered = [ToldTrial(place, trial.values, trial.state, trial.objectives, trial.curve) for place, trial in enumerate(both)]
    study = study_of(spec, sampler, numbered, {place: {sampler._get_generation_key(): 0} for place in range(len(both))})
    return [both[trial.number] for trial in sampler.select_parent(study, 1)]
