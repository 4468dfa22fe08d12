"""Who is asked to leave, and by what right: cases by hand."""

from dataclasses import replace

from tests.support.preempt_world import (
    HOUR_MS,
    NOW_MS,
    POOL,
    PREEMPTING,
    all_start,
    claims,
    devices,
    evictions,
    fleet,
    judge,
    node,
    run,
    snapshot,
    waiting,
)
from trainhouse.events.model.policy import Blocking, Elastic, Order, Preemption, SchedulingPolicy, Team
from trainhouse.scheduler.core.cluster.shape import Part
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.preempt import MAX_SEARCHES, plan_preemption
from trainhouse.scheduler.core.queue.entries import Action, Claim, Eviction, Reservation, Waiting


def plan(book: Book, job: Waiting, now_ms: int = NOW_MS) -> list[Action]:
    """Plans for one gang, and judges."""
    book.put_waiting(job)
    before = book.fork()
    actions = plan_preemption(book, POOL, [job], now_ms)
    judge(before, book, actions, now_ms)
    all_start(book, actions, now_ms)
    return actions


def test_the_gang_that_loses_least_is_asked() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=80), saved_ms=NOW_MS - 1_000)
    run(book, waiting(2, 8, priority=80), saved_ms=NOW_MS - 900_000)
    actions = plan(book, waiting(3, 8, priority=10))
    assert [(e.job_id, e.why, e.for_job) for e in evictions(actions)] == [("j1", Eviction.PREEMPTED, "j3")]
    assert evictions(actions)[0].deadline_ms == NOW_MS + 120_000


def test_one_whole_gang_is_dearer_than_the_sum_of_small_ones_only_if_it_loses_more() -> None:
    book = fleet(2, 4)
    run(book, waiting(1, 4, priority=80), saved_ms=NOW_MS - 3_000_000)
    for n in range(2, 6):
        run(book, waiting(n, 1, priority=80), saved_ms=NOW_MS - 1_000)
    actions = plan(book, waiting(9, 4, priority=10))
    assert sorted(e.job_id for e in evictions(actions)) == ["j2", "j3", "j4", "j5"]


def test_a_small_lead_is_not_enough() -> None:
    book = fleet(1)
    run(book, waiting(1, 8, priority=50))
    job = waiting(2, 8, priority=41)
    assert plan(book, job) == []
    assert [e.job_id for e in evictions(plan(book, replace(job, priority=40)))] == ["j1"]


def test_nobody_is_asked_who_is_young_or_not_preemptible_or_leaving_or_claimed() -> None:
    for more in ({"started_ms": NOW_MS - 599_999}, {"leaving_ms": NOW_MS + 1}):
        book = fleet(1)
        run(book, waiting(1, 4, priority=90), **more)
        run(book, replace(waiting(2, 4, priority=90), preemptible=False))
        state = snapshot(book)
        book.put_waiting(waiting(3, 8, priority=1))
        assert plan_preemption(book, POOL, [waiting(3, 8, priority=1)], NOW_MS) == []
        assert snapshot(book) == state


def test_evictions_are_not_committed_though_the_preemptor_then_fails() -> None:
    """Enough devices could be freed in numbers, but never on one node: nobody is asked."""
    book = fleet(2)
    for n in (1, 2):
        run(book, replace(waiting(n, 4, priority=90), preemptible=False), placement=(Part(n - 1, 0b1111),))
    for n in (3, 4):
        run(book, waiting(n, 4, priority=90))
    state = snapshot(book)
    job = waiting(9, 8, priority=1, require="node")
    book.put_waiting(job)
    assert plan_preemption(book, POOL, [job], NOW_MS) == []
    assert snapshot(book) == state


def test_an_impossible_gang_does_not_stop_those_behind_it() -> None:
    book = fleet(2)
    run(book, waiting(1, 16, priority=90))
    huge, small = waiting(2, 999, priority=1), waiting(3, 8, priority=10)
    for job in (huge, small):
        book.put_waiting(job)
    actions = plan_preemption(book, POOL, [huge, small], NOW_MS)
    assert list(claims(actions)) == ["j3"] and [e.job_id for e in evictions(actions)] == ["j1"]


def test_devices_that_others_leave_already_are_taken_before_anybody_else_is_asked() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=90), leaving_ms=NOW_MS + 60_000)
    run(book, waiting(2, 8, priority=90))
    actions = plan(book, waiting(3, 8, priority=10))
    assert evictions(actions) == [] and list(claims(actions)) == ["j3"]


def test_what_is_claimed_for_another_is_not_taken() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=90), leaving_ms=NOW_MS + 60_000)
    second = run(book, waiting(2, 8, priority=90))
    book.put_waiting(waiting(7, 8, priority=90))
    book.hold(Claim("j7", book.running["j1"].placement, ("j1",), NOW_MS))
    actions = plan(book, waiting(3, 8, priority=10))
    assert [e.job_id for e in evictions(actions)] == ["j2"] and devices(claims(actions)["j3"]) == devices(second.placement)


def test_a_promise_of_equal_rank_keeps_its_nodes_and_one_of_lower_rank_is_ended() -> None:
    for priority, expected in ((10, []), (20, ["j1"])):
        book = fleet(1)
        run(book, waiting(1, 8, priority=90))
        book.put_waiting(waiting(2, 8, priority=priority))
        book.reserve(Reservation("j2", NOW_MS + HOUR_MS, 0b1, NOW_MS))
        actions = plan(book, waiting(3, 8, priority=10))
        assert [e.job_id for e in evictions(actions)] == expected
        assert ("j2" in book.reservations) is not bool(expected)


def test_a_required_rack_is_cleared_where_it_is_cheapest() -> None:
    book = fleet(4, 8, racks=2)
    for n, saved_s in ((1, 900), (2, 900), (3, 30), (4, 1200)):
        run(book, waiting(n, 8, priority=90), placement=(Part(n - 1, 255),), saved_ms=NOW_MS - saved_s * 1000)
    actions = plan(book, waiting(9, 16, priority=10, require="rack"))
    assert sorted(e.job_id for e in evictions(actions)) == ["j3", "j4"]


def test_a_share_of_a_device_costs_only_who_is_on_that_device() -> None:
    book = fleet(1, 2)
    for n in range(1, 5):
        run(book, waiting(n, 1, priority=90, milli=500), saved_ms=NOW_MS - n * 1000)
    actions = plan(book, waiting(9, 1, priority=10, milli=500))
    assert [e.job_id for e in evictions(actions)] == ["j1"]


def test_a_whole_device_needs_all_who_share_it() -> None:
    book = fleet(1, 2)
    for n in range(1, 5):
        run(book, waiting(n, 1, priority=90, milli=500), saved_ms=NOW_MS - n * 1000)
    actions = plan(book, waiting(9, 1, priority=10))
    assert sorted(e.job_id for e in evictions(actions)) == ["j1", "j2"]


def test_the_bound_on_victims_counts() -> None:
    policy = PREEMPTING.model_copy(update={"preemption": Preemption(enabled=True, max_victims=3)})
    book = fleet(1, 8, policy)
    for n in range(1, 9):
        run(book, waiting(n, 1, priority=90))
    assert plan(book, waiting(9, 4, priority=10)) == []
    assert len(evictions(plan(book, waiting(10, 3, priority=10)))) == 3


def test_a_closed_node_is_not_cleared() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=90), saved_ms=NOW_MS)
    run(book, waiting(2, 8, priority=90))
    book.put_node(node(0, is_open=False))
    assert [e.job_id for e in evictions(plan(book, waiting(3, 8, priority=10)))] == ["j2"]


TEAMS = (Team(name="a", guaranteed={"any": 8}), Team(name="b", guaranteed={"any": 8}), Team(name="c"))


def test_a_team_takes_its_guarantee_back_from_borrowers_whatever_the_priorities() -> None:
    book = fleet(3, 8, PREEMPTING.model_copy(update={"teams": TEAMS}))
    run(book, waiting(1, 8, team="b", priority=99))
    run(book, waiting(2, 8, team="b", priority=98))
    run(book, waiting(3, 8, team="c", priority=0))
    actions = plan(book, waiting(4, 8, team="a", priority=99))
    assert [e.why for e in evictions(actions)] == [Eviction.RECLAIMED]
    assert evictions(actions)[0].job_id in ("j1", "j3"), "j2 is what team b is guaranteed"


def test_what_a_team_is_guaranteed_is_safe_from_other_teams() -> None:
    book = fleet(2, 8, PREEMPTING.model_copy(update={"teams": TEAMS}))
    run(book, waiting(1, 8, team="a", priority=99))
    run(book, waiting(2, 8, team="b", priority=99))
    assert plan(book, waiting(3, 8, team="c", priority=0)) == []
    assert [e.job_id for e in evictions(plan(book, waiting(4, 8, team="b", priority=0)))] == ["j2"]


def test_a_team_at_its_limit_stops_only_its_own() -> None:
    teams = (Team(name="a", limit={"any": 8}), Team(name="b"))
    book = fleet(2, 8, PREEMPTING.model_copy(update={"teams": teams}))
    run(book, waiting(1, 8, team="a", priority=99), saved_ms=NOW_MS - 900_000)
    run(book, waiting(2, 8, team="b", priority=99), saved_ms=NOW_MS)
    actions = plan(book, waiting(3, 8, team="a", priority=0))
    assert [e.job_id for e in evictions(actions)] == ["j1"], "j2 is cheaper, but would not help"


def test_under_order_remaining_the_shorter_one_stops_the_longer_one() -> None:
    policy = SchedulingPolicy(order=Order.REMAINING, preemption=Preemption(enabled=True), elastic=Elastic(enabled=False))
    book = fleet(1, 8, policy)
    run(book, waiting(1, 8, run_ms=10 * HOUR_MS), saved_ms=NOW_MS)
    assert plan(book, waiting(2, 8, run_ms=9 * HOUR_MS)) == []
    assert [e.job_id for e in evictions(plan(book, waiting(3, 8, run_ms=HOUR_MS)))] == ["j1"]


def test_elastic_gangs_shrink_before_anybody_is_stopped() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=50, min_ranks=2))
    run(book, waiting(2, 8, priority=90), saved_ms=NOW_MS)
    actions = plan(book, waiting(3, 4, priority=50))
    assert [(e.job_id, e.why, e.ranks) for e in evictions(actions)] == [("j1", Eviction.RESIZED, 4)]
    assert set(claims(actions)) == {"j1", "j3"}


def test_a_gang_shrinks_without_preemption_too_but_not_for_one_far_below_it() -> None:
    policy = PREEMPTING.model_copy(update={"preemption": Preemption(enabled=False)})
    book = fleet(1, 8, policy)
    run(book, waiting(1, 8, priority=50, min_ranks=2))
    assert plan(book, waiting(2, 4, priority=60)) == []
    assert [e.ranks for e in evictions(plan(book, waiting(3, 4, priority=55)))] == [4]


def test_several_shrink_for_one() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=50, min_ranks=4))
    run(book, waiting(2, 8, priority=50, min_ranks=4))
    actions = plan(book, waiting(3, 8, priority=50))
    assert sorted((e.job_id, e.ranks) for e in evictions(actions)) == [("j1", 4), ("j2", 4)]


def test_a_gang_that_cannot_be_helped_under_strict_order_stops_those_behind_it() -> None:
    book = fleet(1, 8, PREEMPTING.model_copy(update={"blocking": Blocking.STRICT}))
    run(book, waiting(1, 8, priority=90))
    head, behind = waiting(2, 16, priority=0), waiting(3, 8, priority=10)
    for job in (head, behind):
        book.put_waiting(job)
    assert plan_preemption(book, POOL, [head, behind], NOW_MS) == []


def test_what_shrinking_does_not_free_is_freed_by_stopping_as_well() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=50, min_ranks=4))
    run(book, waiting(2, 8, priority=90), saved_ms=NOW_MS)
    actions = plan(book, waiting(3, 12, priority=50))
    assert sorted((e.job_id, e.why) for e in evictions(actions)) == [("j1", Eviction.RESIZED), ("j2", Eviction.PREEMPTED)]


def test_an_elastic_gang_is_stopped_as_a_whole_only_if_nothing_else_will_do() -> None:
    book = fleet(1)
    run(book, waiting(1, 8, priority=90, min_ranks=4))
    actions = plan(book, waiting(2, 8, priority=10))
    assert [(e.job_id, e.why, e.ranks) for e in evictions(actions)] == [("j1", Eviction.PREEMPTED, 0)]


def test_an_elastic_gang_stops_others_for_its_least_size_only() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, priority=90), saved_ms=NOW_MS)
    run(book, waiting(2, 8, priority=90))
    actions = plan(book, waiting(3, 16, priority=10, min_ranks=4))
    assert [e.job_id for e in evictions(actions)] == ["j1"]
    assert len(devices(claims(actions)["j3"])) == 8, "what the victim leaves is used"


def test_the_looks_of_one_cycle_are_bounded() -> None:
    """Gangs that can never be placed are looked at 16 times at most; the one behind them has its turn when they are gone."""
    book = fleet(1)
    run(book, waiting(1, 8, priority=90))
    hopeless = [waiting(100 + n, 9 + n, priority=0) for n in range(MAX_SEARCHES)]
    assert plan_preemption(book, POOL, [*hopeless, waiting(9, 8, priority=10)], NOW_MS) == []
    assert evictions(plan_preemption(book, POOL, [*hopeless[1:], waiting(9, 8, priority=10)], NOW_MS))
