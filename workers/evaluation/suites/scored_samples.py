"""Metrics with intervals, over all samples and by group, of columns that a suite has filled. Pure.

Holds: a metric is `transform(sum(numerator) / sum(weight))` of columns, so that it can be recomputed and compared by sample. Groups are
resampled each by itself, so that a resample never loses one; a group below the least size is named, and has no metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainhouse.workers.evaluation.resampling import generator, interval, value_of, values_drawn
from trainhouse.workers.evaluation.result import Group, Grouping, Metric, SampleColumns

_GAP: Final = "gap"


@dataclass(frozen=True)
class MetricRule:
    """Rule by which a metric follows from columns."""

    columns: SampleColumns
    higher_is_better: bool = True
    unit: str = ""


@dataclass(frozen=True)
class Scored:
    """Columns of numbers by sample, and the rules of metrics. `by_group`: rules that hold within groups alone, such as rates by target;
    `undefined`: reasons of metrics that these samples do not have."""

    columns: Mapping[str, NDArray[np.float64]]
    rules: Mapping[str, MetricRule]
    by_group: Mapping[str, MetricRule] = field(default_factory=dict)
    undefined: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Intervals:
    """Settings of intervals."""

    seed: int
    confidence: float
    resamples: int


def metrics_of(scored: Scored, how: Intervals) -> dict[str, Metric]:
    """The metrics over all samples."""
    found = {name: _metric(name, rule, scored.columns, how, "") for name, rule in scored.rules.items()}
    return {name: metric for name, metric in found.items() if metric is not None}


def grouping_of(scored: Scored, values: list[str], column: str, least: int, how: Intervals) -> Grouping:
    """The metrics of each group of a column, and the widest gaps between groups that are large enough."""
    names = np.array(values, dtype=object)
    rules = {**scored.rules, **scored.by_group}
    groups = dict[str, Group]()
    parts = dict[str, dict[str, NDArray[np.float64]]]()
    for value in sorted(set(values)):
        chosen = names == value
        size = int(chosen.sum())
        if size < least:
            groups[value] = Group(samples=size, too_few=True)
            continue
        parts[value] = {name: each[chosen] for name, each in scored.columns.items()}
        found = {name: _metric(name, rule, parts[value], how, f"{column}={value}") for name, rule in rules.items()}
        groups[value] = Group(samples=size, metrics={name: metric for name, metric in found.items() if metric is not None})
    return Grouping(least_samples=least, groups=groups, gaps=_gaps(groups, parts, rules, column, how))


def _metric(name: str, rule: MetricRule, columns: Mapping[str, NDArray[np.float64]], how: Intervals, label: str) -> Metric | None:
    """The metric; None where no sample has any weight."""
    numerator, weight = _of(rule, columns)
    if weight is not None and not weight.sum() > 0:
        return None
    value = value_of(numerator, weight, rule.columns.transform)
    found = interval(numerator, weight, rule.columns.transform, how.confidence, how.resamples, generator(how.seed, name, label))
    low, high = (None, None) if found is None else (min(found[0], value), max(found[1], value))
    return Metric(
        value=value,
        low=low,
        high=high,
        samples=len(numerator) if weight is None else int((weight > 0).sum()),
        higher_is_better=rule.higher_is_better,
        unit=rule.unit,
        columns=rule.columns,
    )


def _gaps(
    groups: Mapping[str, Group],
    parts: Mapping[str, Mapping[str, NDArray[np.float64]]],
    rules: Mapping[str, MetricRule],
    column: str,
    how: Intervals,
) -> dict[str, Metric]:
    found = dict[str, Metric]()
    for name, rule in rules.items():
        having = [value for value in parts if name in groups[value].metrics]
        if len(having) < 2:
            continue
        values = [groups[value].metrics[name].value for value in having]
        drawn = list[NDArray[np.float64]]()
        for value in having:
            numerator, weight = _of(rule, parts[value])
            rng = generator(how.seed, name, f"{column}={value}", _GAP)
            drawn.append(values_drawn(numerator, weight, rule.columns.transform, how.resamples, rng))
        shortest = min(map(len, drawn))
        gap = max(values) - min(values)
        low = high = None
        if shortest:
            each = np.stack([part[:shortest] for part in drawn])
            # Which groups lie farthest apart is fixed: the widest gap of a resample is above the true one by chance alone.
            apart = each[int(np.argmax(values))] - each[int(np.argmin(values))]
            low, high = (float(end) for end in np.quantile(apart, [(1 - how.confidence) / 2, (1 + how.confidence) / 2]))
            low, high = min(low, gap), max(high, gap)
        samples = sum(groups[value].metrics[name].samples for value in having)
        found[name] = Metric(value=gap, low=low, high=high, samples=samples, higher_is_better=False, unit=rule.unit)
    return found


def _of(rule: MetricRule, columns: Mapping[str, NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    weight = rule.columns.weight
    return columns[rule.columns.numerator], None if weight is None else columns[weight]
