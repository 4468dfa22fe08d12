"""Rules of early stopping: what a straightforward reading of the papers gives, in any order of arrivals."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.model.spec import MetricMode
from trainhouse.events.model.study import EarlyStopping, StoppingName
from trainhouse.scheduler.core.studies.stopping import rung_step, rungs_passed, why_stopped

VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]))
RULES = st.builds(
    EarlyStopping,
    name=st.sampled_from([StoppingName.ASHA, StoppingName.MEDIAN]),
    min_step=st.integers(1, 5),
    max_step=st.none() | st.integers(5, 100),
    reduction=st.integers(2, 5),
    min_trials=st.integers(1, 4),
)


def steps(stopping: EarlyStopping) -> list[int]:
    """Steps of all rungs."""
    found = []
    while (step := rung_step(stopping, len(found))) is not None:
        found.append(step)
    return found


def test_rungs_are_min_step_times_powers_of_the_reduction_up_to_max_step() -> None:
    assert steps(EarlyStopping(min_step=2, reduction=3, max_step=54)) == [2, 6, 18, 54]
    assert steps(EarlyStopping(min_step=2, reduction=3, max_step=53)) == [2, 6, 18]
    assert steps(EarlyStopping(min_step=7, max_step=7)) == [7]
    assert len(steps(EarlyStopping(min_step=1, reduction=2))) == 54
    assert steps(EarlyStopping(name=StoppingName.NONE)) == []
    assert rung_step(EarlyStopping(), -1) is None


@given(RULES, st.none() | st.integers(0, 300), st.integers(0, 300))
def test_rungs_passed_are_those_whose_steps_lie_between(stopping: EarlyStopping, before: int | None, step: int) -> None:
    expected = [rung for rung, at in enumerate(steps(stopping)) if at <= step and (before is None or at > before)]
    assert list(rungs_passed(stopping, before, step)) == expected


@given(RULES, st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_a_trial_passes_each_rung_once_however_its_steps_come(stopping: EarlyStopping, logged: list[int]) -> None:
    newest: int | None = None
    passed: list[int] = []
    for step in sorted(logged):
        passed += rungs_passed(stopping, newest, step)
        newest = step
    assert passed == [rung for rung, at in enumerate(steps(stopping)) if at <= max(logged)]


def goes_on(stopping: EarlyStopping, mode: MetricMode, mine: int, reached: list[float], ended: int) -> bool:
    """Whether the trial at place `mine` of those that reached a rung goes on: sorted out in the open, without any short cut."""
    value = reached[mine]
    if math.isnan(value) or math.isinf(value):
        return False
    worst = math.inf if mode is MetricMode.MIN else -math.inf
    counted = [each if math.isfinite(each) else worst for each in reached]
    if stopping.name is StoppingName.MEDIAN:
        others = counted[:mine] + counted[mine + 1 :]
        if not others or ended < stopping.min_trials:
            return True
        ranked = sorted(others, reverse=mode is MetricMode.MAX)
        # An even number of trials, of which the worse one in the middle has no value: the better one is the bound.
        pair = ranked[(len(ranked) - 1) // 2], ranked[len(ranked) // 2]
        bound = median(pair) if math.isfinite(pair[1]) else pair[0]
        return value <= bound if mode is MetricMode.MIN else value >= bound
    best = sorted(counted, reverse=mode is MetricMode.MAX)[: max(1, math.floor(len(counted) / stopping.reduction))]
    return value in best


@given(RULES, st.sampled_from(list(MetricMode)), st.lists(VALUES, min_size=1, max_size=14), st.integers(0, 6))
def test_a_rung_lets_on_whom_the_straightforward_reading_lets_on(
    stopping: EarlyStopping, mode: MetricMode, arriving: list[float], ended: int
) -> None:
    for place, value in enumerate(arriving):
        before = arriving[:place]
        reason = why_stopped(stopping, mode, 0, value, before, ended)
        assert (reason == "") is goes_on(stopping, mode, place, arriving[: place + 1], ended), (value, before, reason)
        # The order of the others is nothing to it, nor is how often it is asked.
        assert reason == why_stopped(stopping, mode, 0, value, sorted(before, key=str), ended)
        # The other direction is the same rule on the other sign.
        other = MetricMode.MAX if mode is MetricMode.MIN else MetricMode.MIN
        assert (reason == "") is (why_stopped(stopping, other, 0, -value, [-each for each in before], ended) == "")


@given(st.data(), st.sampled_from(list(MetricMode)), st.integers(2, 4))
def test_asha_over_any_order_of_arrivals_equals_a_simulation_by_brute_force(data: st.DataObject, mode: MetricMode, reduction: int) -> None:
    """Trials with whole curves, whose rungs arrive in any order that keeps each one's own: ours beside tables that are sorted anew."""
    stopping = EarlyStopping(min_step=1, reduction=reduction, max_step=reduction**3)
    curves = data.draw(st.lists(st.lists(VALUES, min_size=4, max_size=4), min_size=1, max_size=9))
    ours: dict[int, list[float]] = {}
    theirs: list[list[tuple[int, float]]] = [[] for _ in range(4)]
    rung_of = dict.fromkeys(range(len(curves)), 0)
    stopped: dict[int, int] = {}
    while rung_of:
        trial = data.draw(st.sampled_from(sorted(rung_of)))
        rung = rung_of.pop(trial)
        value = curves[trial][rung]
        reason = why_stopped(stopping, mode, rung, value, ours.get(rung, []), len(stopped))
        ours.setdefault(rung, []).append(value)
        theirs[rung].append((trial, value))
        best = sorted((each for _, each in theirs[rung] if math.isfinite(each)), key=lambda each: each if mode is MetricMode.MIN else -each)
        keep = max(1, len(theirs[rung]) // reduction)
        assert (reason == "") is (math.isfinite(value) and value in best[:keep])
        if reason:
            stopped[trial] = rung
        elif rung < 3:
            rung_of[trial] = rung + 1


@pytest.mark.parametrize(
    ("stopping", "value", "others", "ended", "reason"),
    [
        (
            EarlyStopping(max_step=9),
            0.5,
            [0.1, 0.2, 0.3, 0.6, 0.7, math.nan],
            0,
            "asha: 0.5 at step 3 is number 4 of 7 (min), of which 2 go on, from 0.2",
        ),
        (EarlyStopping(), 0.5, [0.1], 0, "asha: 0.5 at step 3 is number 2 of 2 (min), of which 1 goes on, from 0.1"),
        (EarlyStopping(), math.nan, [], 0, "asha: the value at step 3 is nan, which is never among the best"),
        (
            EarlyStopping(name=StoppingName.MEDIAN),
            0.5,
            [0.1, 0.2, 0.6],
            5,
            "median: 0.5 at step 3 is worse than 0.2, the median of 3 trials at that step",
        ),
        (EarlyStopping(name=StoppingName.MEDIAN), 0.5, [0.1, 0.2, 0.6], 4, ""),
        (EarlyStopping(name=StoppingName.NONE), math.nan, [0.1, 0.2, 0.6], 4, ""),
        (EarlyStopping(max_step=1), 0.5, [0.1, 0.2, 0.3], 0, ""),
    ],
)
def test_the_reason_has_the_numbers(stopping: EarlyStopping, value: float, others: list[float], ended: int, reason: str) -> None:
    assert why_stopped(stopping, MetricMode.MIN, 1, value, others, ended) == reason
