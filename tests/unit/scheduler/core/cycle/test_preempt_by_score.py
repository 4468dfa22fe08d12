"""Whole scores lead: who may stop whom by expected run times and waiting, how often, and that it comes to an end."""

from dataclasses import replace

import pytest

from tests.support.preempt_world import HOUR_MS, NOW_MS, POOL, evictions, fleet, run, waiting
from tests.unit.scheduler.core.cycle.test_preempt_livelock import demand
from trainhouse.events.model.policy import Elastic, Preemption, RunTimes, SchedulingPolicy, Score, Victims
from trainhouse.scheduler.core.cycle.preemption.preempt import plan_preemption
from trainhouse.scheduler.core.cycle.preemption.preemption_order import PreemptionOrder
from trainhouse.scheduler.core.cycle.preemption.victims import victims_of
from trainhouse.scheduler.core.queue.score import POINT

BY_SCORE = SchedulingPolicy(
    run_times=RunTimes.LIMITS,
    score=Score(wait_in_run_times=True, wait_head_start_h=1.0, wait_bonus_per_h=100, wait_bonus_max=100),
    preemption=Preemption(enabled=True, margin=10, min_run_s=600, by_score_every_s=60),
    elastic=Elastic(enabled=False),
)


def asked(job_ms: int, running_ms: int, *, priority: int = 50, policy: SchedulingPolicy = BY_SCORE, now_ms: int = NOW_MS) -> bool:
    """Whether a gang that has just come stops another that fills the only node."""
    book = fleet(1, 8, policy)
    run(book, waiting(1, 8, run_ms=running_ms))
    job = replace(waiting(2, 8, run_ms=job_ms, priority=priority), submitted_ms=now_ms, since_ms=now_ms)
    book.put_waiting(job)
    return bool(evictions(plan_preemption(book, POOL, [job], now_ms)))


def test_a_shorter_gang_stops_a_longer_one_by_the_margin_only() -> None:
    assert asked(HOUR_MS // 2, 100 * HOUR_MS)
    assert asked(5 * HOUR_MS, 100 * HOUR_MS)
    assert not asked(50 * HOUR_MS, 100 * HOUR_MS), "2 points against 1: less than the margin"
    assert not asked(100 * HOUR_MS, 5 * HOUR_MS)
    off = BY_SCORE.preemption.model_copy(update={"by_score_every_s": 0.0})
    assert not asked(HOUR_MS // 2, 100 * HOUR_MS, policy=BY_SCORE.model_copy(update={"preemption": off}))


def test_never_one_of_a_higher_priority() -> None:
    assert not asked(60_000, 100 * HOUR_MS, priority=51)
    assert asked(100 * HOUR_MS, HOUR_MS, priority=40), "a higher priority leads as it always does"


def test_at_most_once_in_so_many_seconds() -> None:
    book = fleet(1, 8, BY_SCORE)
    run(book, waiting(1, 8, run_ms=100 * HOUR_MS))
    job = waiting(2, 8, run_ms=HOUR_MS)
    book.put_waiting(job)
    book.marks.settle(POOL, NOW_MS + 1)
    assert not evictions(plan_preemption(book, POOL, [job], NOW_MS + 59_999)), "this minute had its look"
    assert evictions(plan_preemption(book, POOL, [job], NOW_MS + 60_000))


def test_a_running_gang_keeps_what_it_waited_and_is_judged_by_what_is_left() -> None:
    book = fleet(2, 8, BY_SCORE)
    new = run(book, replace(waiting(1, 8, run_ms=10 * HOUR_MS), submitted_ms=NOW_MS - HOUR_MS))
    old = run(book, replace(waiting(2, 8, run_ms=10 * HOUR_MS), submitted_ms=NOW_MS - 9 * HOUR_MS))
    stand = PreemptionOrder(book, POOL, NOW_MS)
    assert stand.points_of(old) > stand.points_of(new)
    later = PreemptionOrder(book, POOL, NOW_MS + 8 * HOUR_MS)
    assert later.points_of(new) > stand.points_of(new), "less is left of it"


def test_who_outlived_what_was_learned_is_expected_to_be_long() -> None:
    policy = BY_SCORE.model_copy(update={"run_times": RunTimes.HISTORY})
    book = fleet(1, 8, policy)
    for ms in [600_000] * 50 + [50 * HOUR_MS] * 5:
        book.estimates.learn(("a",), ms)
    running = run(book, replace(waiting(1, 8, run_ms=5 * HOUR_MS), kin=("a",)))
    young, old = PreemptionOrder(book, POOL, running.started_ms), PreemptionOrder(book, POOL, NOW_MS)
    bonus = [stand.points_of(running) - 50 * POINT for stand in (young, old)]
    assert bonus[0] > 2 * bonus[1]


def test_the_most_recent_first_where_the_policy_says_so() -> None:
    book = fleet(2, 8)
    rules = Preemption(enabled=True, min_run_s=0, victims=Victims.MOST_RECENT)
    old = run(book, waiting(1, 8), started_ms=NOW_MS - 5 * HOUR_MS, saved_ms=NOW_MS)
    new = run(book, waiting(2, 8), started_ms=NOW_MS - HOUR_MS)
    first, second = victims_of([old, new], rules, NOW_MS)
    assert (first.running, second.running) == (new, old)
    assert first.lost > second.lost, "what is lost is told as it is, whatever the choice goes by"


@pytest.mark.parametrize("jobs", [2, 5])
def test_gangs_that_are_alike_take_turns_and_come_to_an_end(jobs: int) -> None:
    """Each wants the whole fleet for ever. Bonuses are bounded, so turns get longer by a margin each, and then nobody is stopped."""
    world = demand(BY_SCORE, [waiting(n, 16, team="ab"[n % 2], run_ms=(20 + n) * HOUR_MS) for n in range(jobs)])
    world.go(4_000)
    stopped = len(world.at_ms)
    assert stopped <= jobs * 10, "most bonus / margin for each"
    world.go(1_000)
    assert len(world.at_ms) - stopped <= jobs
