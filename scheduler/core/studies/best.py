"""Best trials of a study: one metric, the best one; several, the Pareto front. Pure.

Holds: a trial without a finite value of every metric is never among them, whatever others have. Of trials that are equal in one metric the
first one is the best; on a front equal ones stand beside each other. The best of (the best so far and further trials) are the best of all.
"""

from collections.abc import Iterable, Sequence

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import Objective
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


def best_trials(metrics: Sequence[Objective], ended: Iterable[ToldTrial]) -> list[int]:
    """Returns the numbers of the best trials, ascending."""
    signs = [1.0 if metric.mode is MetricMode.MIN else -1.0 for metric in metrics]
    costs = sorted(
        (tuple(sign * value for sign, value in zip(signs, trial.result, strict=True)), trial.number)
        for trial in ended
        if trial.result is not None
    )
    if len(signs) == 1:
        return [number for _, number in costs[:1]]
    front: list[tuple[float, ...]] = []
    numbers = []
    # In this order a trial can be beaten only by one before it.
    for cost, number in costs:
        if not any(_beats(other, cost) for other in front):
            front.append(cost)
            numbers.append(number)
    return sorted(numbers)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
