"""Elastic gangs grow into devices that nobody waits for, and only then."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

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
    run,
    snapshot,
    waiting,
)
from tests.support.profiles import examples
from trainhouse.events.model.policy import Elastic, Team
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.elastic import plan_elastic
from trainhouse.scheduler.core.cycle.preemption.plans import claim_for
from trainhouse.scheduler.core.cycle.release_forecast import expected_end_ms
from trainhouse.scheduler.core.queue.entries import Action, Eviction, Reservation
from trainhouse.scheduler.core.queue.project_bounds import Bound


def plan(book: Book, now_ms: int = NOW_MS) -> list[Action]:
    """Plans, and judges."""
    before = book.fork()
    actions = plan_elastic(book, POOL, now_ms)
    judge(before, book, actions, now_ms)
    all_start(book, actions, now_ms)
    return actions


def test_a_gang_grows_onto_its_own_and_idle_devices() -> None:
    book = fleet(2)
    small = run(book, waiting(1, 16, min_ranks=4), ranks=8)
    actions = plan(book)
    assert [(e.job_id, e.why, e.ranks, e.for_job) for e in evictions(actions)] == [("j1", Eviction.RESIZED, 16, "j1")]
    assert devices(small.placement) < devices(claims(actions)["j1"])


def test_it_does_not_grow_while_somebody_waits_who_could_ever_run() -> None:
    book = fleet(2)
    run(book, waiting(1, 16, min_ranks=4), ranks=4)
    book.put_waiting(waiting(2, 16))
    state = snapshot(book)
    assert plan(book) == [] and snapshot(book) == state
    book.remove("j2", NOW_MS)
    book.put_waiting(waiting(3, 17))
    assert len(evictions(plan(book))) == 1


def test_it_grows_while_only_those_wait_whom_their_projects_limit_keeps_out() -> None:
    book = fleet(2)
    run(book, waiting(1, 8, min_ranks=4), ranks=4)
    run(book, replace(waiting(2, 2), project="vision"))
    book.put_waiting(replace(waiting(3, 2), project="vision"))
    assert plan(book.fork()) == []
    book.bound("vision", Bound(1, 1, None))
    assert [e.job_id for e in evictions(plan(book))] == ["j1"]


def test_it_does_not_grow_before_its_time_nor_when_disabled_nor_when_full() -> None:
    book = fleet(2)
    run(book, waiting(1, 16, min_ranks=4), ranks=8, started_ms=NOW_MS - 299_999)
    assert plan(book) == []
    assert len(plan(book.fork(), NOW_MS + 1)) == 2
    book.set_policy(POOL, PREEMPTING.model_copy(update={"elastic": Elastic(enabled=False)}), NOW_MS)
    assert plan(book, NOW_MS + 1) == []
    full = fleet(2)
    run(full, waiting(1, 8, min_ranks=4))
    assert plan(full) == []


def test_it_grows_in_whole_groups() -> None:
    book = fleet(2)
    run(book, waiting(1, 12, min_ranks=4, group=4), ranks=4)
    run(book, waiting(2, 3))
    assert [e.ranks for e in evictions(plan(book))] == [12]
    tight = fleet(1)
    run(tight, waiting(1, 8, min_ranks=4, group=4), ranks=4)
    run(tight, waiting(2, 1))
    assert plan(tight) == []


def test_it_grows_by_its_last_rank() -> None:
    book = fleet(1)
    run(book, waiting(1, 8, min_ranks=4), ranks=7)
    assert [e.ranks for e in evictions(plan(book))] == [8]


def test_a_gang_with_a_claim_on_devices_is_not_given_a_second_one() -> None:
    book = fleet(3)
    small = run(book, waiting(1, 24, min_ranks=4), ranks=8)
    moving = place(book.cluster, small.job.shape, PREEMPTING.packing, ranks=8)
    assert moving is not None
    book.hold(claim_for("j1", moving, [small], NOW_MS))
    assert plan(book) == []


def test_it_grows_only_if_the_run_time_saved_exceeds_what_a_restart_loses() -> None:
    for left_ms, grows in ((239_000, False), (242_000, True)):
        book = fleet(2)
        job = waiting(1, 16, min_ranks=4, run_ms=HOUR_MS + left_ms)
        run(book, job, ranks=8, saved_ms=NOW_MS - 60_000)
        assert bool(plan(book)) is grows, "half of what is left, against a minute of work and a minute of restart"


def test_it_grows_up_to_its_team_s_limit_and_beside_promised_starts() -> None:
    book = fleet(3, 8, PREEMPTING.model_copy(update={"teams": (Team(name="a", limit={"any": 12}),)}))
    run(book, waiting(1, 24, min_ranks=4), ranks=8)
    assert [e.ranks for e in evictions(plan(book))] == [12]
    kept = fleet(3)
    run(kept, waiting(1, 24, min_ranks=4), ranks=8)
    kept.reserve(Reservation("later", NOW_MS + 1, 0b110, NOW_MS))
    assert plan(kept) == []


def test_run_times_scale_with_ranks() -> None:
    book = fleet(2)
    job = waiting(1, 16, min_ranks=4, run_ms=HOUR_MS)
    quarter = run(book, job, ranks=4)
    assert expected_end_ms(job, quarter.ranks, NOW_MS) == NOW_MS + 4 * HOUR_MS


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(2, 20), st.booleans()), min_size=1, max_size=6), st.integers(2, 4))
def test_growth_fits_and_never_makes_anybody_smaller(gangs: list[tuple[int, int, bool]], nodes: int) -> None:
    book = fleet(nodes)
    for number, (least, more, elastic) in enumerate(gangs, 1):
        job = waiting(number, least + more, min_ranks=least) if elastic else waiting(number, least)
        if place(book.cluster, job.shape, book.policy(POOL).packing, ranks=least) is not None:
            run(book, job, ranks=least)
    before = book.fork()
    actions = plan(book)
    assert all(e.ranks > before.running[e.job_id].ranks for e in evictions(actions))
    able = [r for r in before.running.values() if r.job.shape.min_ranks and r.ranks < r.job.shape.ranks]
    assert bool(actions) is bool(able and before.cluster.free(POOL)), "free devices are used while a gang could grow"
