"""Specs of studies and trials told of them, for tests of samplers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainhouse.events import Gang, JobSpec, Runtime
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.events.model.study_space import Value
from trainhouse.scheduler.core.studies.told import ToldTrial

JOB = JobSpec(name="trial", user="ada", gang=Gang(ranks=1), runtime=Runtime(command=("true",)))
SPACE: dict[str, dict[str, Any]] = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "momentum": {"low": 0.0, "high": 0.99},
    "width": {"low": 16, "high": 128, "step": 16, "type": "int"},
    "depth": {"low": 1, "high": 8, "type": "int", "log": True},
    "dropout": {"low": 0.0, "high": 0.5, "step": 0.1},
}
CHOICES: dict[str, Any] = {"choices": ["adam", "sgd", None, 1, True, 1.0]}
CONDITIONAL: dict[str, dict[str, Any]] = {
    "optimizer": {"choices": ["adam", "sgd"]},
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "momentum": {"low": 0.0, "high": 0.99, "when": {"optimizer": ["sgd"]}},
    "nesterov": {"choices": [True, False], "when": {"optimizer": ["sgd"]}},
    "damping": {"low": 0.0, "high": 1.0, "when": {"nesterov": [True]}},
}


def study_spec(space: dict[str, dict[str, Any]] | None = None, sampler: str = "tpe", metrics: int = 1, **more: Any) -> StudySpec:
    """Returns a spec; `startup` names the sampler's startup trials."""
    startup = more.pop("startup", None)
    return StudySpec.model_validate(
        {
            "space": SPACE if space is None else space,
            "metrics": [{"name": f"metric_{index}", "mode": "min" if index % 2 == 0 else "max"} for index in range(metrics)],
            "sampler": {"name": sampler} | ({} if startup is None else {"startup_trials": startup}),
            "budget": {"trials": 1000},
            "job": JOB,
        }
        | more
    )


def told_trial(
    number: int, values: dict[str, Value], state: TrialState = TrialState.COMPLETE, *objectives: float, **more: Any
) -> ToldTrial:
    """Returns a trial that is told; without objectives it has none."""
    return ToldTrial(number, values, state, objectives or None, tuple(more.get("curve", ())))


def loss(values: dict[str, Value]) -> float:
    """Smooth function of any values, with one minimum."""
    total = 0.0
    for name, value in sorted(values.items()):
        if isinstance(value, str) or value is None or isinstance(value, bool):
            total += 0.1 * len(repr(value))
        else:
            total += (float(value) / (1 + abs(float(value))) - 0.2) ** 2 + 0.01 * len(name)
    return total


def run(
    spec: StudySpec,
    trials: int,
    suggested: Callable[[StudySpec, list[ToldTrial], int], dict[str, Value]],
    state: Callable[[int], TrialState] = lambda number: TrialState.COMPLETE,
) -> list[ToldTrial]:
    """Runs trials one after another by suggestions, and returns them as they are told."""
    told: list[ToldTrial] = []
    for number in range(trials):
        values = suggested(spec, told, number)
        result = tuple(loss(values) * (index + 1) * (-1) ** index for index in range(len(spec.metrics)))
        each = state(number)
        ended = each in (TrialState.COMPLETE, TrialState.STOPPED)
        curve = ((1, result[0] + 1), (3, result[0] + 0.5)) if each is TrialState.STOPPED else ((1, result[0] + 1),)
        told.append(ToldTrial(number, values, each, result if ended else None, curve))
    return told
