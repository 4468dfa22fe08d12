"""Early stopping of trials at rungs: ASHA (Li et al. 2020, the variant that stops) and the median rule (Golovin et al. 2017). Pure.

Holds: a trial is judged once at each rung, by the values of the trials that reached that rung before it, so the order in which values
arrive decides, and nothing else. A value that is NaN or infinite is never among the best. A trial that equals the last one that goes
on goes on too. Where no other has reached the rung yet, a finite value goes on.
"""

from collections.abc import Sequence
from math import inf, isfinite
from statistics import median
from typing import Final

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping, StoppingName

# Rungs beyond it are none: no step is as large (`MOST_COUNT`).
_MOST_STEP: Final = 2**53


def rung_step(stopping: EarlyStopping, rung: int) -> int | None:
    """Returns the step of rung 0, 1, …; None beyond the last one."""
    if stopping.name is StoppingName.NONE or rung < 0 or rung > _MOST_STEP.bit_length():
        return None
    step = stopping.min_step * stopping.reduction**rung
    return step if step <= (_MOST_STEP if stopping.max_step is None else stopping.max_step) else None


def rungs_passed(stopping: EarlyStopping, before: int | None, step: int) -> tuple[int, ...]:
    """Returns the rungs that a trial passes between its value at step `before` (None: it had none) and the one at `step`."""
    passed = []
    rung = 0
    while (at := rung_step(stopping, rung)) is not None and at <= step:
        if before is None or before < at:
            passed.append(rung)
        rung += 1
    return tuple(passed)


def why_stopped(stopping: EarlyStopping, mode: MetricMode, rung: int, value: float, others: Sequence[float], ended: int) -> str:
    """Returns why a trial ends at a rung, with the numbers; empty text: it goes on.

    `others`: values of the other trials that have reached the rung; `ended`: trials that have ended.
    """
    step = rung_step(stopping, rung)
    if step is None:
        return ""
    if not isfinite(value):
        return f"{stopping.name}: the value at step {step} is {value:g}, which is never among the best"
    sign = mode.sign
    costs = sorted(sign * other if isfinite(other) else inf for other in others)
    if stopping.name is StoppingName.MEDIAN:
        return _why_below_median(stopping, step, value, costs, sign, ended)
    going_on = max(1, (len(costs) + 1) // stopping.reduction)
    better = sum(cost < sign * value for cost in costs)
    if better < going_on:
        return ""
    return (
        f"asha: {value:g} at step {step} is number {better + 1} of {len(costs) + 1} ({mode}), of which {going_on}"
        f" {'goes' if going_on == 1 else 'go'} on, from {sign * costs[going_on - 1]:g}"
    )


def _why_below_median(stopping: EarlyStopping, step: int, value: float, costs: list[float], sign: float, ended: int) -> str:
    if not costs or ended < stopping.min_trials:
        return ""
    # Two in the middle may be infinite, and so is their mean; of a finite and an infinite one the finite one is the bound.
    middle = median(costs) if isfinite(costs[len(costs) // 2]) else costs[(len(costs) - 1) // 2]
    if sign * value <= middle:
        return ""
    return f"median: {value:g} at step {step} is worse than {sign * middle:g}, the median of {len(costs)} trials at that step"
