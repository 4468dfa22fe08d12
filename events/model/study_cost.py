"""Bounds on what one suggestion may cost, checked before a study begins. Pure.

Holds: by them a suggestion takes at most about a minute of one processor, and a GiB, at the end of the largest study that is let through,
also after a restart. They are coarse: the process of samplers bounds time and memory of each suggestion itself.
"""

from collections.abc import Mapping
from typing import Final

from trainhouse.events.model.study_space import Parameter

MOST_GRID: Final = 100_000
MOST_GP_TRIALS: Final = 1000
MOST_GP_WORK: Final = 10_000_000
"""Of trials × trials × parameters: memory of a Gaussian process grows so, to about a GiB, its time faster."""
MOST_TPE_METRICS: Final = 4
"""The time for the hypervolume of a front grows as a power of the number of metrics."""
MOST_TPE_CELLS: Final = 20_000_000
"""Of trials × choices of a parameter: a density has a number for each pair."""
MOST_CMAES_WORK: Final = 100_000_000
"""Of trials × (parameters + 40)²: after a restart all generations are gone through once."""
MOST_GENERATIONS: Final = 20_000
_POPULATION: Final = 50


def why_too_costly(sampler: str, space: Mapping[str, Parameter], metrics: int, startup: int | None, trials: int, known: int) -> str:
    """Returns why suggestions of so many trials, and trials known before, cannot be computed; empty text: they can."""
    if sampler == "tpe" and metrics > MOST_TPE_METRICS:
        return (
            f"metrics: sampler tpe takes too long for each trial with more than {MOST_TPE_METRICS}, and there are {metrics}; "
            "name fewer, or take nsgaii, qmc, random or grid"
        )
    most, why = _most_trials(sampler, space, startup)
    if most is None or trials + known <= most:
        return ""
    also = f", the {known} of `known` among them," if known else ""
    at_most = f"a study of at most {most} trials{also} may have it"
    return f"budget.trials: sampler {sampler} {why} {at_most}; name so many, or take another sampler"


def _most_trials(sampler: str, space: Mapping[str, Parameter], startup: int | None) -> tuple[int | None, str]:
    """The most trials, and why; None: any number."""
    match sampler:
        case "gp":
            most = min(MOST_GP_TRIALS, int((MOST_GP_WORK / len(space)) ** 0.5))
            return most, f"takes ever longer for each trial, so with {len(space)} parameters"
        case "tpe":
            choices = max(len(each.choices) for each in space.values())
            return MOST_TPE_CELLS // max(1, choices), f"has a density of {choices} choices for each trial, so with these"
        case "cmaes":
            numbers = sum(not each.choices for each in space.values())
            return MOST_CMAES_WORK // (numbers + 40) ** 2, f"goes through all generations after a restart, so with {numbers} numbers"
        case "nsgaii":
            size = max(2, startup or _POPULATION)
            return MOST_GENERATIONS * size, f"goes through all generations after a restart, so with {size} trials in each"
    return None, ""
