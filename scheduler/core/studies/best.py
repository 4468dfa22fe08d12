"""Best trials of a study: one metric, the best one; several, the Pareto front. Pure.

Holds: a trial without a finite value of every metric is never among them, whatever others have. Of trials that are equal in one metric the
one with the smallest number is the best; on a front equal ones stand beside each other. The best are the same in whatever order trials end.
"""

from collections.abc import Sequence

from trainhouse.events.model.study import Objective
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


def best_with(metrics: Sequence[Objective], best: Sequence[ToldTrial], ended: ToldTrial) -> list[int]:
    """Returns the numbers of the best trials, ascending, now that another one has ended. `best`: the best ones before it."""
    if ended.result is None:
        return sorted(trial.number for trial in best)
    signs = [metric.mode.sign for metric in metrics]
    costs = [(_cost(signs, trial.result), trial.number) for trial in best if trial.result is not None]
    new = _cost(signs, ended.result)
    if len(signs) == 1:
        return [min([*costs, (new, ended.number)])[1]]
    if any(_beats(cost, new) for cost, _ in costs):
        return sorted(number for _, number in costs)
    return sorted([ended.number, *(number for cost, number in costs if not _beats(new, cost))])


def _cost(signs: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    return tuple(sign * value for sign, value in zip(signs, values, strict=True))


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
