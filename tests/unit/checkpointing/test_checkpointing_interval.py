"""How often to save."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.checkpointing.interval import IntervalBounds, Measured, advise, best_interval_s


def wasted(interval_s: float, cost_s: float, mtbf_s: float) -> float:
    """Share of time lost: expected time for one interval of work, with failures at an exponential rate (Daly 2006, eq. 13)."""
    return mtbf_s * (math.exp((interval_s + cost_s) / mtbf_s) - 1) / interval_s


@given(st.floats(0.01, 100), st.floats(600, 1e6))
def test_the_best_interval_beats_its_neighbours(cost_s: float, mtbf_s: float) -> None:
    best = best_interval_s(cost_s, mtbf_s)
    here = wasted(best, cost_s, mtbf_s)
    assert here <= wasted(best * 1.5, cost_s, mtbf_s) and here <= wasted(best / 1.5, cost_s, mtbf_s)


def test_it_grows_with_the_cost_and_shrinks_with_failures() -> None:
    assert best_interval_s(1, 3600) < best_interval_s(4, 3600) < best_interval_s(4, 36000)
    assert best_interval_s(10, 3) == 3 and best_interval_s(0, 3600) == 0
    assert best_interval_s(2, 24 * 3600) == pytest.approx(math.sqrt(2 * 2 * 24 * 3600), rel=0.01)


def test_the_spec_bounds_it() -> None:
    cheap, dear = Measured(save_cost_s=1e-6), Measured(save_cost_s=1e5)
    assert advise(cheap, IntervalBounds(min_interval_s=30)).interval_s == 30
    assert advise(dear, IntervalBounds(max_interval_s=1800)).interval_s == 1800
    assert advise(dear, IntervalBounds(every_s=7)).interval_s == 7


def test_a_slow_store_lengthens_it_and_is_told() -> None:
    fast, bounds = Measured().saved(0.5), IntervalBounds()
    slow = fast
    for _ in range(20):
        slow = slow.saved(300.0)
    assert advise(slow, bounds).interval_s > advise(fast, bounds).interval_s
    assert advise(slow, bounds).slow_store and not advise(fast, bounds).slow_store


def test_failures_shorten_the_time_between_them() -> None:
    calm = Measured(run_s=100_000)
    assert Measured(run_s=100_000, failures=9).mtbf_s == pytest.approx(calm.mtbf_s / 10)


def test_it_is_never_shorter_than_an_upload_and_a_store_that_cannot_keep_up_is_slow() -> None:
    bounds = IntervalBounds(min_interval_s=30, max_interval_s=600)
    quick, long = Measured().saved(0.05).uploaded(20.0), Measured().saved(0.05).uploaded(100.0)
    assert advise(quick, bounds).interval_s == advise(Measured().saved(0.05), bounds).interval_s and not advise(quick, bounds).slow_store
    assert advise(long, bounds).interval_s == 100.0 and advise(long, bounds).slow_store
    assert advise(long, IntervalBounds(every_s=7)).interval_s == 7, "the next save waits for it then"
