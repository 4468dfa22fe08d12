"""Waiting jobs, policies and the plain way to say what the queue must say."""

from hypothesis import strategies as st

from tests.support.shapes import simple
from trainhouse.events.model.policy import FairShare, Order, SchedulingPolicy, Team
from trainhouse.events.model.policy import Score as ScoreRule
from trainhouse.scheduler.core.queue.entries import Waiting
from trainhouse.scheduler.core.queue.lanes import Lanes
from trainhouse.scheduler.core.queue.order import Turn, in_order
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.score import score
from trainhouse.scheduler.core.queue.usage import Usage

POOL = "p"
CAPACITY = Amounts((("h100", 64_000),))


def job(number: int, *, team: str = "a", priority: int = 50, ranks: int = 1, run_ms: int | None = None, not_before_ms: int = 0) -> Waiting:
    """Submitted a second after the one before it."""
    at = 1000 * number
    shape = simple(POOL, ranks, "h100")
    return Waiting(f"j{number}", number, team, priority, shape, at, at, run_ms=run_ms, not_before_ms=not_before_ms)


@st.composite
def jobs(draw: st.DrawFn) -> list[Waiting]:
    """Up to 30 jobs of few teams, priorities, sizes and run times, so that lanes have several each."""
    count = draw(st.integers(0, 30))
    return [
        job(
            n,
            team=draw(st.sampled_from("abc")),
            priority=draw(st.sampled_from([10, 50])),
            ranks=draw(st.sampled_from([1, 4])),
            run_ms=draw(st.sampled_from([None, 0, 60_000, 61_000, 3_600_000])),
        )
        for n in range(count)
    ]


@st.composite
def policies(draw: st.DrawFn) -> SchedulingPolicy:
    """Any order, with weights that differ."""
    rule = ScoreRule(
        wait_in_run_times=draw(st.booleans()),
        wait_bonus_per_h=draw(st.sampled_from([0.0, 1.0, 7.3])),
        wait_bonus_max=draw(st.sampled_from([0.5, 50.0])),
    )
    teams = (Team(name="a", weight=draw(st.sampled_from([0.5, 1.0, 3.0]))), Team(name="b", parent="a"))
    return SchedulingPolicy(order=draw(st.sampled_from(list(Order))), score=rule, teams=teams, fair_share=FairShare(half_life_h=1.0))


def usage_of(policy: SchedulingPolicy, now_ms: int) -> Usage:
    """A pool in which team b has run 8 devices for a while."""
    usage = Usage()
    usage.set_policy(POOL, policy)
    usage.set_capacity(POOL, CAPACITY)
    usage.start(POOL, "b", Amounts((("h100", 8_000),)), now_ms // 2)
    return usage


def lanes_of(waiting: list[Waiting], policy: SchedulingPolicy) -> Lanes:
    lanes = Lanes()
    lanes.set_policy(POOL, policy)
    for one in waiting:
        lanes.put(one)
    return lanes


def turn_of(lanes: Lanes, usage: Usage, policy: SchedulingPolicy, now_ms: int) -> Turn:
    return in_order(lanes, usage, POOL, policy, now_ms)


def the_order(waiting: list[Waiting], usage: Usage, policy: SchedulingPolicy, now_ms: int, teams: list[str] | None = None) -> list[str]:
    """Job ids by the full key, sorted plainly. `teams`: those with demand when the pass began."""
    fair = usage.fair_shares(POOL, teams if teams is not None else {w.team for w in waiting})

    def key(one: Waiting) -> tuple[float, float, int]:
        if policy.order is Order.SUBMIT:
            return (0, 0, one.number)
        if policy.order in (Order.SHORTEST, Order.REMAINING):
            return (UNKNOWN_RUN_MS if one.run_ms is None else one.run_ms, 0, one.number)
        if policy.order is Order.FAIR:
            return (usage.share(POOL, one.team, now_ms) / fair[one.team], one.priority, one.number)
        return (-score(one, policy, usage.of(POOL), fair[one.team], now_ms).total, 0, one.number)

    return [w.job_id for w in sorted(waiting, key=key)]
