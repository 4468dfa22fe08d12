"""Moves: only gangs that find another place at once, only for more than they cost, only so many an hour."""

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
from trainhouse.events.model.policy import Defragmentation, Preemption, SchedulingPolicy, Team
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Part
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.defragment import plan_moves
from trainhouse.scheduler.core.queue.entries import Action, Eviction, Reservation, Waiting


def policy(**rules: float) -> SchedulingPolicy:
    moving = Defragmentation.model_validate({"enabled": True, **rules})
    return PREEMPTING.model_copy(update={"preemption": Preemption(), "defragmentation": moving})


def plan(book: Book, jobs: list[Waiting], now_ms: int = NOW_MS) -> list[Action]:
    """Plans, and judges."""
    for job in jobs:
        book.put_waiting(job)
    before, state = book.fork(), snapshot(book)
    actions = plan_moves(book, POOL, jobs, now_ms)
    if not actions:
        assert snapshot(book) == state
    judge(before, book, actions, now_ms)
    all_start(book, actions, now_ms)
    for evict in evictions(actions):
        assert evict.why is Eviction.MOVED
        where = claims(actions)[evict.job_id]
        assert len(devices(where)) == before.running[evict.job_id].ranks
        assert not devices(where) & devices(before.running[evict.job_id].placement) or evict.for_job
    return actions


def scattered(rules: SchedulingPolicy, *, run_ms: int | None = 20 * HOUR_MS, saved_ms: int = NOW_MS) -> Book:
    """Two nodes with a gang of 4 on each: 8 devices are free, on no node together."""
    book = fleet(2, 8, rules)
    for number in (1, 2):
        run(book, waiting(number, 4, run_ms=run_ms), placement=(Part(number - 1, 0b1111),), saved_ms=saved_ms)
    return book


def test_one_of_two_gangs_moves_so_that_a_whole_node_is_free() -> None:
    book = scattered(policy())
    actions = plan(book, [waiting(9, 8, require="node")])
    assert len(evictions(actions)) == 1 and set(claims(actions)) == {"j9", evictions(actions)[0].job_id}
    assert book.moves_ms == (NOW_MS,)


def test_nobody_moves_if_not_enough_is_free_or_nobody_can_be_placed_again() -> None:
    book = scattered(policy())
    run(book, waiting(3, 1, run_ms=20 * HOUR_MS))
    assert plan(book, [waiting(9, 8, require="node")]) == []


def test_nobody_moves_for_less_than_it_costs() -> None:
    """The gang would wait 20 h - 1 h - 2 min with 8 ranks; a move loses its unsaved time and a minute, with 4."""
    for unsaved_h, moves in ((37, 0), (1, 1)):
        book = scattered(policy(min_gain=2), saved_ms=NOW_MS - unsaved_h * HOUR_MS)
        assert len(evictions(plan(book, [waiting(9, 8, require="node")]))) == moves
    soon = scattered(policy(), run_ms=HOUR_MS + 150_000)
    assert plan(soon, [waiting(9, 8, require="node")]) == []


def test_where_nothing_is_known_of_what_runs_the_guess_decides() -> None:
    """Gangs that ran for an hour are guessed to run 20 min more: worth a move that loses nothing, not one that loses the hour."""
    for saved_ms, moves in ((NOW_MS, 1), (NOW_MS - HOUR_MS, 0)):
        book = scattered(policy(), run_ms=None, saved_ms=saved_ms)
        assert len(evictions(plan(book, [waiting(9, 8, require="node")]))) == moves


def test_a_promised_start_says_how_long_the_wait_would_be() -> None:
    book = scattered(policy(), run_ms=None)
    book.put_waiting(waiting(9, 8, require="node"))
    book.reserve(Reservation("j9", NOW_MS + 5 * HOUR_MS, 0b1, NOW_MS))
    assert len(evictions(plan(book, [waiting(9, 8, require="node")]))) == 1
    assert "j9" not in book.reservations


def test_only_so_many_an_hour() -> None:
    for earlier, moves in ((3, 0), (2, 1)):
        book = scattered(policy(max_moves_per_h=3))
        book.moves_ms = (NOW_MS - HOUR_MS, *(NOW_MS - 1000 for _ in range(earlier)))
        assert len(evictions(plan(book, [waiting(9, 8, require="node")]))) == moves


def test_off_by_default_and_bound_by_quotas() -> None:
    assert plan(scattered(PREEMPTING), [waiting(9, 8, require="node")]) == []
    limited = policy().model_copy(update={"teams": (Team(name="a", limit={"any": 12}),)})
    assert plan(scattered(limited), [waiting(9, 8, require="node")]) == []


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(2, 40)), min_size=2, max_size=10),
    st.integers(2, 5),
    st.integers(1, 8),
)
def test_all_who_move_and_the_gang_have_their_places(gangs: list[tuple[int, int, int]], nodes: int, most: int) -> None:
    book = fleet(nodes, 8, policy(max_moves_per_h=most, min_gain=1))
    for number, (ranks, at, hours) in enumerate(gangs, 1):
        job = waiting(number, ranks, run_ms=hours * HOUR_MS)
        where = place(book.cluster, job.shape, book.policy(POOL).packing, only=1 << at % nodes)
        if where is not None:
            run(book, job, placement=where, saved_ms=NOW_MS - HOUR_MS // 2)
    large = (waiting(98, 8, require="node"), waiting(99, 6, require="node"))
    jobs = [j for j in large if place(book.cluster, j.shape, book.policy(POOL).packing) is None]
    before = book.fork()
    actions = plan(book, jobs)
    assert len(evictions(actions)) <= most
    for evict in evictions(actions):
        mover = before.running[evict.job_id]
        latest = max(r.ends_ms or 0 for r in before.running.values())
        cost = (NOW_MS - mover.saved_ms + 60_000) * mover.ranks
        assert (latest - NOW_MS) * next(j for j in large if j.job_id == evict.for_job).shape.ranks > cost
