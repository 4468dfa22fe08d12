"""Run times of which nothing is known: a large gang still gets a start that small ones may not push back."""

import pytest

from trainhouse.events.model.policy import Order, RunTimes, SchedulingPolicy
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.types import SimNode, TraceJob


@pytest.mark.parametrize("order", [Order.SUBMIT, Order.SCORE, Order.FAIR])
def test_a_stream_of_small_jobs_does_not_starve_a_large_gang(order: Order) -> None:
    small = [TraceJob(f"s{n:03}", "a", 12 * n, 90, 1) for n in range(600)]
    large = TraceJob("large", "b", 300, 60, 8)
    policy = SchedulingPolicy(order=order, run_times=RunTimes.LIMITS)
    result = simulate([*small, large], [SimNode("n0", 8)], policy)
    row = next(r for r in result.rows if r.job_id == "large")
    assert row.first_start_s is not None
    # At most what ran when it came: nothing is let in before it, since nobody says how short it is.
    assert row.first_start_s - 300 <= 90


@pytest.mark.parametrize("every_s", [8, 9, 10])
def test_a_share_that_falls_while_devices_are_gathered_does_not_take_the_promise(every_s: int) -> None:
    """More work than devices: as the other team's gangs end for the large one, its share falls below and its jobs come first again."""
    small = [TraceJob(f"s{n:03}", "a", every_s * n, 90, 1) for n in range(600)]
    policy = SchedulingPolicy(order=Order.FAIR, run_times=RunTimes.LIMITS)
    result = simulate([*small, TraceJob("large", "b", 300, 60, 8)], [SimNode("n0", 8)], policy)
    row = next(r for r in result.rows if r.job_id == "large")
    assert row.first_start_s is not None and row.first_start_s - 300 <= 90
