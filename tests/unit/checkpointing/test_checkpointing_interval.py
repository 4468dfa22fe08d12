"""How often to save."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.checkpointing.interval import IntervalBounds, Measured, advised_interval_s, best_interval_s


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
    assert advised_interval_s(cheap, IntervalBounds(min_interval_s=30)) == 30
    assert advised_interval_s(dear, IntervalBounds(max_interval_s=1800)) == 1800
    assert advised_interval_s(dear, IntervalBounds(every_s=7)) == 7


def test_a_slow_store_lengthens_it() -> None:
    fast, bounds = Measured().saved(0.5), IntervalBounds()
    slow = fast
    for _ in range(20):
        slow = slow.saved(300.0)
    assert advised_interval_s(slow, bounds) > advised_interval_s(fast, bounds)


def test_failures_shorten_the_time_between_them() -> None:
    calm = Measured(run_s=100_000)
    assert Measured(run_s=100_000, failures=9).mtbf_s == pytest.approx(calm.mtbf_s / 10)


def test_it_is_never_shorter_than_an_upload() -> None:
    bounds = IntervalBounds(min_interval_s=30, max_interval_s=600)
    quick, long = Measured().saved(0.05).uploaded(20.0), Measured().saved(0.05).uploaded(100.0)
    assert advised_interval_s(quick, bounds) == advised_interval_s(Measured().saved(0.05), bounds)
    assert advised_interval_s(long, bounds) == 100.0
    assert advised_interval_s(long, IntervalBounds(every_s=7)) == 7, "the next save waits for it then"
