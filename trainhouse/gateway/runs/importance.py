"""Importance of parameters for a metric: Spearman's rank correlation over runs, by numpy.

Holds: pure; says nothing from fewer than LEAST_RUNS runs, nor of a parameter or a metric that is the same in all of them. Words have no
order: each value of such a parameter is a parameter of its own, 1 where a run has it, else 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LEAST_RUNS = 5
MOST_VALUES = 12
"""Values of a parameter of words; one with more is a name rather than a choice."""
STATISTIC = "Spearman's rank correlation"


def importance(parameters: Mapping[str, Mapping[str, Any]], values: Mapping[str, float]) -> list[dict[str, Any]]:
    """{parameter, correlation from -1 to 1, runs} of each parameter that can be judged, the strongest first.

    `parameters`: values by run, by parameter; `values`: the metric by run, finite.
    """
    found = []
    for name, by_run in parameters.items():
        known = {run_id: by_run[run_id] for run_id in values if run_id in by_run}
        for title, numbers in _columns(name, known):
            correlation = _correlation(numbers, [values[run_id] for run_id in known])
            if correlation is not None:
                found.append({"parameter": title, "correlation": correlation, "runs": len(known)})
    return sorted(found, key=lambda one: (-abs(one["correlation"]), one["parameter"]))


def _columns(name: str, known: Mapping[str, Any]) -> Iterator[tuple[str, list[float]]]:
    values = list(known.values())
    if all(_is_number(value) for value in values):
        yield name, [float(value) for value in values]
        return
    texts = [str(value) for value in values]
    different = sorted(set(texts))
    if len(different) > MOST_VALUES:
        return
    # Of two values one says all.
    for text in different[1:] if len(different) == 2 else different:
        yield f"{name} = {text}", [float(one == text) for one in texts]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 2**1000 and math.isfinite(value)


def _correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    import numpy  # slow to import, and not needed to start

    if len(xs) < LEAST_RUNS or len(set(xs)) < 2 or len(set(ys)) < 2:
        return None

    def ranks(numbers: Sequence[float]) -> Any:
        _, place, count = numpy.unique(numbers, return_inverse=True, return_counts=True)
        return (numpy.cumsum(count) - (count - 1) / 2)[place]

    return round(float(numpy.corrcoef(ranks(xs), ranks(ys))[0, 1]), 4)
