"""Trials of a log, folded as Optuna's own replay folds them, as far as their end has to be known. Pure.

Holds: a trial ends once; what comes for it later counts for nothing, as in Optuna. Of a trial that ended only its number stays.
Never: decides anything that Optuna reads: its own replay of the same lines does.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from trainhouse.gateway.optuna.journal_log import Append
from trainhouse.gateway.optuna.log_operations import Code, Operation, State, external

METRIC_NAMES: Final = "study:metric_names"


@dataclass
class Trial:
    """One trial that has not ended. `reports`: value and time by step."""

    study_id: int
    trial_id: int
    number: int
    user: str
    started_ms: int
    params: dict[str, Any] = field(default_factory=dict)
    reports: dict[int, tuple[float | None, int]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EndedTrial:
    """One trial that ended, with the study that it is of."""

    trial: Trial
    study: str
    metrics: tuple[str, ...]
    """Names of its values, where the study has named them."""
    state: State
    values: tuple[float, ...]
    ended_ms: int


@dataclass
class _Study:
    name: str
    trials: int = 0
    metrics: tuple[str, ...] = ()


@dataclass
class TrialFold:
    """Studies and trials as they are after the lines that were folded."""

    _studies: dict[int, _Study] = field(default_factory=dict)
    _created: int = 0
    _trials: list[Trial | None] = field(default_factory=list)
    """By trial id; None: it ended."""

    def fold(self, operation: Operation, append: Append) -> EndedTrial | None:
        """Folds one operation of an append; returns the trial that it ended."""
        match operation["op_code"]:
            case Code.CREATE_STUDY:
                if operation["study_name"] not in (study.name for study in self._studies.values()):
                    self._studies[self._created] = _Study(operation["study_name"])
                    self._created += 1
            case Code.DELETE_STUDY:
                self._studies.pop(operation["study_id"], None)
            case Code.SET_STUDY_SYSTEM_ATTR:
                self._name_metrics(operation)
            case Code.CREATE_TRIAL:
                return self._create(operation, append)
            case code if Code.CREATE_TRIAL < code <= Code.SET_TRIAL_SYSTEM_ATTR:
                return self._change(operation, append)
        return None

    def _name_metrics(self, operation: Operation) -> None:
        study, names = self._studies.get(operation["study_id"]), operation["system_attr"].get(METRIC_NAMES)
        if study is not None and isinstance(names, list):
            study.metrics = tuple(map(str, names))

    def _create(self, operation: Operation, append: Append) -> EndedTrial | None:
        study = self._studies.get(operation["study_id"])
        if study is None:
            return None
        trial = Trial(operation["study_id"], len(self._trials), study.trials, append.user, append.at_ms)
        given, distributions = operation.get("params", {}), operation.get("distributions", {})
        trial.params = {name: external(distributions[name], value) for name, value in given.items()}
        trial.attributes = dict(operation.get("user_attrs", {}))
        trial.reports = {int(step): (value, append.at_ms) for step, value in operation.get("intermediate_values", {}).items()}
        study.trials += 1
        self._trials.append(trial)
        state, values = State(operation.get("state", State.RUNNING)), operation.get("values")
        if values is None and operation.get("value") is not None:
            values = [operation["value"]]
        return self._end(trial, state, values, append) if state.final else None

    def _change(self, operation: Operation, append: Append) -> EndedTrial | None:
        trial_id = operation["trial_id"]
        trial = self._trials[trial_id] if 0 <= trial_id < len(self._trials) else None
        if trial is None:
            return None
        match operation["op_code"]:
            case Code.SET_TRIAL_PARAM:
                trial.params[operation["param_name"]] = external(operation["distribution"], operation["param_value_internal"])
            case Code.SET_TRIAL_INTERMEDIATE_VALUE:
                trial.reports[operation["step"]] = operation["intermediate_value"], append.at_ms
            case Code.SET_TRIAL_USER_ATTR:
                trial.attributes |= operation["user_attr"]
            case Code.SET_TRIAL_STATE_VALUES:
                state = State(operation["state"])
                if state.final:
                    return self._end(trial, state, operation["values"], append)
                if state is State.RUNNING:
                    trial.started_ms = append.at_ms
        return None

    def _end(self, trial: Trial, state: State, values: list[float] | None, append: Append) -> EndedTrial | None:
        self._trials[trial.trial_id] = None
        study = self._studies.get(trial.study_id)
        if study is None:
            return None
        return EndedTrial(trial, study.name, study.metrics, state, tuple(values or ()), append.at_ms)
