"""Optuna's study in memory of what is known of a study of ours, as Optuna itself would have it had it run these trials.

Holds: trials stand in the order of their numbers, whatever the order in which they ended.
Never: changes a trial that it was given.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import SamplerName, StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.events.model.study_values import index_of_choices
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies.parameter_values import distribution
from trainhouse.scheduler.stream.studies.suggestion_memory import SuggestionMemory

_OPEN: Final = frozenset({TrialState.WAITING, TrialState.RUNNING})
# No sampler reads times.
_WHEN: Final = datetime(2026, 1, 1)
_NOTHING: Final[dict[Any, Any]] = {}


class _KnownTrials(optuna.storages.InMemoryStorage):
    """Storage in memory that has trials from the start: `Study.add_trial` checks and copies each, which takes longer than a suggestion."""

    def __init__(self, known: list[FrozenTrial]) -> None:
        super().__init__()
        self._known = known

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id = super().create_new_trial(study_id, template_trial)
        self.get_trial(trial_id).number += len(self._known)
        return trial_id

    def get_all_trials(self, study_id: int, deepcopy: bool = True, states: Container[OptunaState] | None = None) -> list[FrozenTrial]:
        known = self._known if states is None else [trial for trial in self._known if trial.state in states]
        return [*known, *super().get_all_trials(study_id, deepcopy, states)]


def study_of(
    spec: StudySpec,
    sampler: optuna.samplers.BaseSampler,
    trials: Sequence[ToldTrial],
    attributes: Mapping[int, dict[str, Any]] | None = None,
    memory: SuggestionMemory | None = None,
) -> optuna.Study:
    """Returns a study of trials. `attributes`: Optuna's system attributes by the number of a trial."""
    found = attributes or {}
    ordered = ((trial, found.get(trial.number, _NOTHING)) for trial in sorted(trials, key=lambda each: each.number))
    known = (memory or SuggestionMemory()).made(ordered, _maker(spec))
    directions = ["minimize" if metric.mode is MetricMode.MIN else "maximize" for metric in spec.metrics]
    return optuna.create_study(storage=_KnownTrials(known), sampler=sampler, pruner=optuna.pruners.NopPruner(), directions=directions)


def optunas_id(place: int) -> int:
    """Returns Optuna's id of the known trial at a place; the ids of those that the storage makes are not negative."""
    return -1 - place


def _maker(spec: StudySpec) -> Callable[[int, ToldTrial, dict[str, Any]], FrozenTrial]:
    """Returns the function that makes Optuna's trial of ours and its system attributes, at its place."""
    distributions: dict[str, BaseDistribution] = {name: distribution(parameter) for name, parameter in spec.space.items()}
    indexes = {name: index_of_choices(parameter.choices) for name, parameter in spec.space.items() if parameter.choices}
    by_names: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}
    ranks_stopped = spec.sampler.name is SamplerName.TPE

    def made(place: int, trial: ToldTrial, attributes: dict[str, Any]) -> FrozenTrial:
        state, values = _state(trial, ranks_stopped)
        params: dict[str, Any] = dict(trial.values)
        for name, index in indexes.items():
            if name in params:
                params[name] = index(params[name])
        names = tuple(params)
        if names not in by_names:
            by_names[names] = {name: distributions[name] for name in names}
        return FrozenTrial(
            number=place,
            trial_id=optunas_id(place),
            state=state,
            value=None,
            values=values,
            datetime_start=_WHEN,
            datetime_complete=None if state is OptunaState.RUNNING else _WHEN,
            params=params,
            distributions=by_names[names],
            user_attrs=_NOTHING,
            system_attrs=attributes,
            intermediate_values=dict(trial.curve) if state is OptunaState.PRUNED else _NOTHING,
        )

    return made


def _state(trial: ToldTrial, ranks_stopped: bool) -> tuple[OptunaState, tuple[float, ...] | None]:
    """Optuna's state of a trial, and values if it is complete."""
    if trial.state in _OPEN:
        return OptunaState.RUNNING, None
    if trial.state is TrialState.STOPPED and ranks_stopped and trial.curve:
        return OptunaState.PRUNED, None
    result = trial.result
    return (OptunaState.FAIL, None) if result is None else (OptunaState.COMPLETE, result)
