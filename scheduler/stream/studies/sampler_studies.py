"""Sampler of each name over the study in memory of what was told.

Holds: what Optuna's samplers keep between suggestions (CMA-ES its distribution, NSGA-II its generations, QMC its place in the sequence) is
made anew of what was told. Complete trials make up CMA-ES's and NSGA-II's generations in the order in which they were told.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from trainhouse.events.model.study import SamplerName, StudySpec
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.optuna_study import optunas_id, study_of
from trainhouse.scheduler.stream.studies.parameter_values import distribution
from trainhouse.scheduler.stream.studies.suggestion_memory import memory_of

_POPULATION: Final = 50
_LEAST_POPULATION: Final = 2
# Optuna's system attributes of a trial.
_GENERATION: Final = "cma:generation"
_DISTRIBUTION: Final = "cma:optimizer"


def study_for(spec: StudySpec, trials: Sequence[ToldTrial], seed: int, number: int) -> optuna.Study:
    """Returns the study that has trial `number` suggested next."""
    startup: dict[str, Any] = {} if spec.sampler.startup_trials is None else {"n_startup_trials": spec.sampler.startup_trials}
    match spec.sampler.name:
        case SamplerName.RANDOM:
            return study_of(spec, RandomSampler(seed=seed), ())
        case SamplerName.QMC:
            return study_of(spec, _SequenceSampler(spec, seed, number), ())
        case SamplerName.GP:
            return study_of(spec, GPSampler(seed=seed, **startup), trials, memory=memory_of(spec))
        case SamplerName.CMAES:
            return _cmaes_study(spec, trials, seed)
        case SamplerName.NSGAII:
            return _nsgaii_study(spec, trials, seed)
        case _:
            return study_of(spec, TPESampler(seed=seed, constant_liar=True, **startup), trials, memory=memory_of(spec))


class _SequenceSampler(QMCSampler):
    """Quasi-random sequence of the whole study, at the place of one trial. Choices are drawn at random, as Optuna's own has it."""

    def __init__(self, spec: StudySpec, seed: int, place: int) -> None:
        super().__init__(scramble=True, seed=spec.seed, independent_sampler=RandomSampler(seed=seed))
        self._place = place
        drawn = {name: distribution(parameter) for name, parameter in spec.space.items()}
        # Optuna's own takes the space of the first trial, which is therefore drawn at random; ours is known.
        self._drawn: dict[str, BaseDistribution] = {
            name: each for name, each in drawn.items() if not isinstance(each, CategoricalDistribution) and not each.single()
        }

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._drawn

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:
        return self._place


def _cmaes_study(spec: StudySpec, trials: Sequence[ToldTrial], seed: int) -> optuna.Study:
    first = 1 if spec.sampler.startup_trials is None else spec.sampler.startup_trials
    space = {name: distribution(parameter) for name, parameter in spec.space.items()}
    numbers = [each for each in space.values() if not isinstance(each, CategoricalDistribution) and not each.single()]
    # Population of Hansen 2016, which the library takes too; named, since generations are made up of it here.
    size = 4 + int(3 * log(len(numbers))) if numbers else 1

    def sampler(startup: int) -> CmaEsSampler:
        return CmaEsSampler(seed=seed, n_startup_trials=startup, popsize=size)

    def step(place: int, generation: Sequence[ToldTrial], before: dict[str, Any]) -> dict[str, Any]:
        attributes = {trial.number: {_GENERATION: place} for trial in generation}
        # Optuna reads the distribution from any trial, and writes the next one to the trial that it suggests.
        attributes[generation[0].number] |= before
        study = study_of(spec, sampler(1), generation, attributes)
        study.ask(space)
        return {key: value for key, value in study.trials[-1].system_attrs.items() if key.startswith(_DISTRIBUTION)}

    known = sum(trial.number < 0 for trial in trials)
    complete = _own_complete(trials)[max(0, first - known) :]
    attributes: dict[int, dict[str, Any]] = {trial.number: {_GENERATION: place // size} for place, trial in enumerate(complete)}
    memory = memory_of(spec)
    nothing: dict[str, Any] = {}
    newest = memory.folded(_generations(complete, size), nothing, step)
    if newest:
        attributes[complete[-1].number] |= newest
    return study_of(spec, sampler(first), trials, attributes, memory)


def _nsgaii_study(spec: StudySpec, trials: Sequence[ToldTrial], seed: int) -> optuna.Study:
    size = max(_LEAST_POPULATION, spec.sampler.startup_trials or _POPULATION)
    sampler = NSGAIISampler(seed=seed, population_size=size)
    key = sampler._get_generation_key()

    def step(place: int, generation: Sequence[ToldTrial], parents: list[ToldTrial]) -> list[ToldTrial]:
        both = [*generation, *parents]
        numbered = [replace(trial, number=number) for number, trial in enumerate(both)]
        study = study_of(spec, sampler, numbered, {number: {key: 0} for number in range(len(both))})
        return [both[trial.number] for trial in sampler.select_parent(study, 1)]

    complete = _own_complete(trials)
    generations = _generations(complete, size)
    memory = memory_of(spec)
    none: list[ToldTrial] = []
    parents = {trial.number for trial in memory.folded(generations, none, step)}
    study = study_of(spec, sampler, trials, {trial.number: {key: place // size} for place, trial in enumerate(complete)}, memory)
    ids = [optunas_id(place) for place, number in enumerate(sorted(trial.number for trial in trials)) if number in parents]
    study._storage.set_study_system_attr(study._study_id, f"{sampler._get_parent_cache_key_prefix()}{len(generations)}", ids)
    return study


def _own_complete(trials: Sequence[ToldTrial]) -> list[ToldTrial]:
    """Returns what generations are made of: trials that were known from the start are of none, as those that Optuna's study is given."""
    return [trial for trial in trials if trial.result is not None and trial.number >= 0]


def _generations(complete: Sequence[ToldTrial], size: int) -> list[Sequence[ToldTrial]]:
    """Returns the generations that further trials followed: what comes of the newest one is worked out by the suggestion itself, as
    Optuna has it."""
    return [complete[first : first + size] for first in range(0, (len(complete) - 1) // size * size, size)]
