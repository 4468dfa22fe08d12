"""Optuna's study in memory of what is told of a study of ours, as Optuna itself would have it had it run these trials.

Holds: trials stand in the order of their numbers, whatever the order in which they ended.
Never: waits for or changes what was told.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import SamplerName, StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.told import ToldTrial
from trainhouse.scheduler.stream.studies.parameter_values import distribution, internal

_OPEN: Final = frozenset({TrialState.WAITING, TrialState.RUNNING})
# No sampler reads times; Optuna's checks ask for some.
_WHEN: Final = datetime(2026, 1, 1)


class _Told(FrozenTrial):
    """Trial that a storage takes as it is: it was made for this one storage."""

    def __deepcopy__(self, memo: Any) -> "_Told":
        return self


def study_of(
    spec: StudySpec,
    sampler: optuna.samplers.BaseSampler,
    told: Sequence[ToldTrial],
    attributes: Mapping[int, dict[str, Any]] | None = None,
) -> optuna.Study:
    """Returns a study of told trials. `attributes`: Optuna's system attributes by the number of a trial."""
    storage = optuna.storages.InMemoryStorage()
    directions = ["minimize" if metric.mode is MetricMode.MIN else "maximize" for metric in spec.metrics]
    study = optuna.create_study(storage=storage, sampler=sampler, pruner=optuna.pruners.NopPruner(), directions=directions)
    study_id = storage.get_study_id_from_name(study.study_name)
    for trial in frozen(spec, sorted(told, key=lambda each: each.number), attributes or {}):
        # `Study.add_trial` checks and copies each one, which takes longer than the suggestion.
        storage.create_new_trial(study_id, template_trial=trial)
    return study


def frozen(spec: StudySpec, told: Iterable[ToldTrial], attributes: Mapping[int, dict[str, Any]]) -> Iterable[FrozenTrial]:
    """Yields Optuna's trials."""
    distributions: dict[str, BaseDistribution] = {name: distribution(parameter) for name, parameter in spec.space.items()}
    choosing = {name for name, parameter in spec.space.items() if parameter.choices}
    ranks_stopped = spec.sampler.name is SamplerName.TPE
    for trial in told:
        state, values = _state(trial, ranks_stopped)
        params: dict[str, Any] = dict(trial.values)
        for name in choosing & params.keys():
            params[name] = internal(spec.space[name], params[name])
        yield _Told(
            number=-1,
            trial_id=-1,
            state=state,
            value=None,
            values=values,
            datetime_start=_WHEN,
            datetime_complete=None if state is OptunaState.RUNNING else _WHEN,
            params=params,
            distributions={name: distributions[name] for name in params},
            user_attrs={},
            system_attrs=attributes.get(trial.number, {}),
            intermediate_values=dict(trial.curve),
        )


def _state(trial: ToldTrial, ranks_stopped: bool) -> tuple[OptunaState, tuple[float, ...] | None]:
    """Optuna's state of a trial, and values if it is complete."""
    if trial.state in _OPEN:
        return OptunaState.RUNNING, None
    if trial.state is TrialState.STOPPED and ranks_stopped and trial.curve:
        return OptunaState.PRUNED, None
    return (OptunaState.FAIL, None) if trial.result is None else (OptunaState.COMPLETE, trial.result)
