"""Scores: each term visible, whole numbers, the highest first."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.queue_world import CAPACITY, POOL, job
from trainhouse.events.model.policy import FairShare, SchedulingPolicy
from trainhouse.events.model.policy import Score as ScoreRule
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS, grade_ms
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.score import HOUR_MS, POINT, WaitRule, score
from trainhouse.scheduler.core.queue.usage import Usage


def test_the_terms_add_up_and_read_well() -> None:
    policy = SchedulingPolicy(score=ScoreRule(wait_bonus_per_h=2.0, over_share_weight=10.0), fair_share=FairShare(history=0.0))
    usage = Usage()
    usage.set_policy(POOL, policy)
    usage.set_capacity(POOL, CAPACITY)
    usage.start(POOL, "a", Amounts((("h100", 48_000),)), 0)
    found = score(job(0, priority=30), policy, usage.of(POOL), 0.5, 10 * HOUR_MS)
    assert (found.priority_term, found.wait_bonus, found.over_share_penalty) == (70 * POINT, 20 * POINT, 5 * POINT)
    assert found.total == 85 * POINT and (found.share, found.fair_share) == (0.75, 0.5)
    assert found.text() == "85 = 70 (100 - priority) + 20 (wait) - 5 (over share)"


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_waiting_never_lowers_a_score_and_the_bonus_is_bounded(now_ms: int, later_ms: int, in_run_times: bool) -> None:
    rule = WaitRule(ScoreRule(wait_in_run_times=in_run_times, wait_bonus_max=7.5))
    one = job(0, run_ms=60_000)
    early, late = rule.bonus(one, now_ms), rule.bonus(one, now_ms + later_ms)
    assert 0 <= early <= late <= 7.5 * POINT


def test_waiting_can_count_in_expected_run_times() -> None:
    rule = WaitRule(ScoreRule(wait_in_run_times=True, wait_bonus_per_h=3.0, wait_bonus_max=6.0))
    assert rule.bonus(job(0, run_ms=1 << 20), 1 << 21) == 3 * POINT, "two run times are 6 points of 6 at most: bent, half of them"
    assert rule.bonus(job(0), 2 * HOUR_MS) == 3 * POINT, "without an expected run time an hour counts as one"


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9))
def test_with_a_head_start_the_shorter_comes_first_and_no_bonus_reaches_the_most(one_ms: int, other_ms: int, waited_ms: int) -> None:
    rule = WaitRule(ScoreRule(wait_in_run_times=True, wait_head_start_h=1.0, wait_bonus_per_h=100.0, wait_bonus_max=100.0))
    shorter, longer = min(one_ms, other_ms), max(one_ms, other_ms)
    assert 100 * POINT > rule.ratio(waited_ms, shorter) >= rule.ratio(waited_ms, longer) > 0
    assert rule.ratio(waited_ms + HOUR_MS, longer) >= rule.ratio(waited_ms, longer), "and who waits never falls"


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_classes_of_run_times_are_close_and_in_order(one_ms: int, other_ms: int) -> None:
    assert one_ms <= grade_ms(one_ms) <= max(8, one_ms * 5 // 4)
    assert grade_ms(grade_ms(one_ms)) == grade_ms(one_ms)
    if one_ms <= other_ms:
        assert grade_ms(one_ms) <= grade_ms(other_ms) < UNKNOWN_RUN_MS


def test_time_with_devices_is_not_waiting() -> None:
    rule = WaitRule(ScoreRule())
    again = replace(job(0), ran_ms=HOUR_MS, since_ms=3 * HOUR_MS)
    assert rule.bonus(again, 3 * HOUR_MS) == 2 * POINT
