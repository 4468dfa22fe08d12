"""Trials that a study knows from its start: of an earlier study, or points of other origin. They count for its sampler, not for its best.

Holds: a known trial has a value of each parameter that exists beside its others, within the bounds, and a finite value of each metric. What
was taken is in the study's spec, so that suggestions follow from the journal alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count, Metric, ShortText
from trainhouse.events.model.labels import Label
from trainhouse.events.model.study_space import MOST_PARAMETERS, Parameter, Value
from trainhouse.events.model.study_values import exists, value_fault

MOST_KNOWN: Final = 2000
_COUNT: Final = ("COMPLETE", "STOPPED")


class KnownTrial(Model):
    """A trial whose values are known from the start."""

    values: dict[Label, Value] = Field(max_length=MOST_PARAMETERS, description="values by parameter")
    metrics: dict[Annotated[str, Field(max_length=256)], Metric] = Field(max_length=8, description="values by metric")
    stopped_at: Count | None = Field(None, exclude_if=is_absent, description="step at which it ended early; absent: it is complete")
    study: ShortText = Field("", exclude_if=is_absent, description="study that it is of; empty: of none")
    trial: Count | None = Field(None, exclude_if=is_absent, description="its number there")


@dataclass(slots=True)
class TakenTrials:
    """Trials of one origin. `left_out`: why the others do not count, in their order."""

    known: list[KnownTrial] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def known_fault(space: Mapping[str, Parameter], metrics: Iterable[str], trial: KnownTrial) -> str:
    """Returns why a trial is none of a space and metrics; empty text: it is one."""
    unknown = sorted(trial.values.keys() - space.keys())
    if unknown:
        return f"its {unknown[0]} is no parameter of `space`"
    seen: dict[str, Value] = {}
    for name, parameter in space.items():
        if not exists(parameter, seen):
            if name in trial.values:
                return f"its {name} does not exist beside its other values"
            continue
        if name not in trial.values:
            return f"it has no {name}"
        if fault := value_fault(name, parameter, trial.values[name]):
            return fault
        seen[name] = trial.values[name]
    for metric in metrics:
        if metric not in trial.metrics:
            return f"it has no value of {metric}"
        if not isfinite(trial.metrics[metric]):
            return f"its {metric} is {trial.metrics[metric]:g}"
    return ""


def metrics_fault(metrics: Iterable[tuple[str, str]], study: Mapping[str, Any]) -> str:
    """Returns why trials of an earlier study, as its lists have it, are none for metrics with their modes; empty text: they are some."""
    modes = dict(zip(study["metrics"], study["modes"], strict=True))
    for name, mode in metrics:
        if name not in modes:
            return f"its metric is {', '.join(modes)}, and the new study's {name}"
        if modes[name] != mode:
            return f"its {name} is best at its {modes[name]}, and the new study's at its {mode}"
    return ""


def taken_of_study(space: Mapping[str, Parameter], metrics: Iterable[str], study: str, rows: Iterable[Mapping[str, Any]]) -> TakenTrials:
    """Returns those trials of an earlier study, as its lists have them, that a new one knows."""
    names = list(metrics)
    ended = (row for row in rows if row["state"] in _COUNT)
    return _taken(
        space,
        names,
        (
            (
                f"trial {row['trial']}",
                {
                    "values": row["parameters"],
                    "metrics": {name: row["values"][name] for name in names if row["values"].get(name) is not None},
                    "stopped_at": row["step"] if row["state"] == "STOPPED" else None,
                    "study": study,
                    "trial": row["trial"],
                },
            )
            for row in ended
        ),
    )


def taken_of_rows(space: Mapping[str, Parameter], metrics: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> TakenTrials:
    """Returns the points among rows whose columns are called as parameters and metrics are; other columns are not looked at."""
    names = list(metrics)
    return _taken(
        space,
        names,
        (
            (
                f"row {number}",
                {
                    # A join has NULL where a parameter does not exist.
                    "values": {name: row[name] for name, each in space.items() if name in row and not (each.when and row[name] is None)},
                    "metrics": {name: row[name] for name in names if row.get(name) is not None},
                },
            )
            for number, row in enumerate(rows, 1)
        ),
    )


def _taken(space: Mapping[str, Parameter], metrics: list[str], named: Iterable[tuple[str, dict[str, Any]]]) -> TakenTrials:
    taken = TakenTrials()
    for name, fields in named:
        try:
            trial = KnownTrial.model_validate(fields)
            fault = known_fault(space, metrics, trial)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            fault = f"{'.'.join(map(str, first['loc'][:2]))}: {first['msg']}"
        if fault:
            taken.left_out.append(f"{name}: {fault}")
        else:
            taken.known.append(trial)
    over = len(taken.known) - MOST_KNOWN
    if over > 0:
        taken.left_out.append(f"the first {over} that fit: the newest {MOST_KNOWN} count")
        taken.known = taken.known[over:]
    return taken
