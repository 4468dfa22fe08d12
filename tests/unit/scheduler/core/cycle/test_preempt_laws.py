"""Preemption's laws on random fleets, and its cost beside every possible choice on small ones."""

from dataclasses import replace
from itertools import combinations

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
from trainhouse.events.model.policy import Elastic, Order, Packing, Preemption, Team
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.preempt import plan_preemption
from trainhouse.scheduler.core.cycle.preemption.victim_selection import Item, cheapest
from trainhouse.scheduler.core.queue.entries import Claim, Eviction, Reservation, Waiting

SIZES = st.sampled_from([1, 1, 2, 3, 4, 8, 12])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Book, list[Waiting]]:
    """Up to 6 nodes, crowded with gangs of all kinds, some leaving, a promise and a claim here and there; and gangs that found no place."""
    teams = draw(st.sampled_from([(), (Team(name="a", guaranteed={"any": 8}), Team(name="b", limit={"any": 16}))]))
    policy = PREEMPTING.model_copy(
        update={
            "teams": teams,
            "order": draw(st.sampled_from([Order.SCORE, Order.SUBMIT, Order.REMAINING])),
            "packing": draw(st.sampled_from([Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE, Packing.BEST_FIT])),
            "preemption": Preemption(enabled=draw(st.booleans()), max_victims=draw(st.sampled_from([2, 64])), margin=5),
            "elastic": Elastic(enabled=draw(st.booleans())),
        }
    )
    book = fleet(draw(st.integers(1, 6)), draw(st.sampled_from([2, 4, 8])), policy, racks=draw(st.sampled_from([0, 2])))
    for number in range(1, draw(st.integers(1, 14))):
        job = draw(gangs(number))
        where = place(book.cluster, job.shape, policy.packing)
        if where is not None:
            running = run(book, job, placement=where, saved_ms=NOW_MS - draw(st.integers(0, HOUR_MS)))
            if draw(st.integers(0, 9)) == 0:
                book.put_running(replace(running, leaving_ms=NOW_MS + 1000), NOW_MS)
    for number in (90, 91):
        other = waiting(number, draw(SIZES), priority=draw(st.sampled_from([10, 50])), run_ms=HOUR_MS)
        if draw(st.booleans()):
            book.put_waiting(other)
            free = place(book.cluster, other.shape, policy.packing)
            if number == 90:
                book.reserve(Reservation(other.job_id, NOW_MS + HOUR_MS, draw(st.integers(1, 63)), NOW_MS))
            elif free is not None:
                book.hold(Claim(other.job_id, free, (), NOW_MS))
    asking = [draw(gangs(n)) for n in range(50, 50 + draw(st.integers(1, 3)))]
    for job in asking:
        book.put_waiting(job)
    return book, [job for job in asking if place(book.cluster, job.shape, policy.packing) is None]


@st.composite
def gangs(draw: st.DrawFn, number: int) -> Waiting:
    kind = draw(st.sampled_from(["rigid", "rigid", "elastic", "share", "rack"]))
    ranks = 1 if kind == "share" else draw(SIZES)
    more: dict[str, object] = {"elastic": {"min_ranks": max(1, ranks // 2)}, "share": {"milli": 400}, "rack": {"require": "rack"}}.get(
        kind, {}
    )
    job = waiting(number, ranks, team=draw(st.sampled_from("abc")), priority=draw(st.sampled_from([0, 20, 50, 90])), **more)
    run_ms = draw(st.sampled_from([None, HOUR_MS * 2, HOUR_MS * 20]))
    return replace(job, preemptible=draw(st.integers(0, 9)) > 0, run_ms=run_ms)


@settings(max_examples=examples(400))
@given(worlds())
def test_a_preemptor_always_starts_and_nobody_leaves_for_nothing(world: tuple[Book, list[Waiting]]) -> None:
    book, asking = world
    before = book.fork()
    state = snapshot(book)
    actions = plan_preemption(book, POOL, asking, NOW_MS)
    if not actions:
        assert snapshot(book) == state, "nothing was planned, and something changed"
    assert snapshot(before) == state
    judge(before, book, actions, NOW_MS)
    all_start(book, actions, NOW_MS)
    by_job: dict[str, int] = {}
    for evict in evictions(actions):
        by_job[evict.for_job] = by_job.get(evict.for_job, 0) + 1
    assert max(by_job.values(), default=0) <= before.policy(POOL).preemption.max_victims


@settings(max_examples=examples(400))
@given(worlds())
def test_evictions_follow_rank_guarantee_and_limits(world: tuple[Book, list[Waiting]]) -> None:
    book, asking = world
    before, policy = book.fork(), book.policy(POOL)
    jobs = {job.job_id: job for job in asking}
    actions = plan_preemption(book, POOL, asking, NOW_MS)
    for evict in evictions(actions):
        job, victim = jobs[evict.for_job], before.running[evict.job_id]
        if evict.why is Eviction.RESIZED:
            assert policy.elastic.enabled and victim.job.shape.min_ranks <= evict.ranks < victim.ranks
            assert len(devices(claims(actions)[evict.job_id])) == evict.ranks
        elif evict.why is Eviction.RECLAIMED:
            assert policy.teams and job.team == "a" != victim.job.team, "only team a is guaranteed anything"
        elif policy.order is Order.REMAINING:
            assert job.run_ms is not None and (victim.ends_ms is None or victim.ends_ms - NOW_MS > job.run_ms)
        else:
            assert victim.job.priority >= job.priority + 5
    if policy.teams:
        held = sum(r.ranks * r.placement[0].milli for r in book.running.values() if r.job.team == "b" and r.leaving_ms is None)
        mine = {i: c for i, c in claims(actions).items() if (book.lanes.get(i) or book.running[i].job).team == "b"}
        claimed = sum(part.ranks * part.milli for placement in mine.values() for part in placement)
        before_b = sum(r.ranks * r.placement[0].milli for r in before.running.values() if r.job.team == "b")
        assert not mine or held + claimed <= max(16_000, before_b), "team b passes its limit"


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3000)), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 8), st.data()
)
def test_for_a_gang_on_one_node_no_choice_is_cheaper(gangs: list[tuple[int, int]], nodes: int, ranks: int, data: st.DataObject) -> None:
    book = fleet(nodes)
    for number, (size, unsaved_s) in enumerate(gangs, 1):
        job = waiting(number, size, priority=90)
        where = place(book.cluster, job.shape, Packing.STRICT_CONSOLIDATE)
        if where is not None:
            run(book, job, placement=where, saved_ms=NOW_MS - unsaved_s * 1000)
    job = waiting(99, ranks, priority=10, require="node")
    if place(book.cluster, job.shape, Packing.TOPOLOGY) is not None:
        return
    book.put_waiting(job)
    expected = _brute_force(book, ranks)
    actions = plan_preemption(book, POOL, [job], NOW_MS)
    spent = sum((NOW_MS - book.running[e.job_id].saved_ms + 60_000) * book.running[e.job_id].ranks for e in evictions(actions))
    assert bool(actions) is (expected is not None)
    assert spent == (expected or 0)


def _brute_force(book: Book, ranks: int) -> int | None:
    """The least loss over all sets of gangs that leave enough devices on some node."""
    best: int | None = None
    gangs = list(book.running.values())
    for count in range(1, len(gangs) + 1):
        for chosen in combinations(gangs, count):
            freed = {d for r in chosen for d in devices(r.placement)}
            used = {d for r in gangs for d in devices(r.placement)} - freed
            for index in range(len(book.cluster.idle)):
                if len([p for p in range(8) if (index, p) not in used]) >= ranks:
                    loss = sum((NOW_MS - r.saved_ms + 60_000) * r.ranks for r in chosen)
                    best = loss if best is None else min(best, loss)
    return best


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=7), st.integers(1, 8), st.integers(1, 7))
def test_the_cheapest_choice_is_exact(items: list[tuple[int, int]], need: int, most: int) -> None:
    found = cheapest([Item((n,), gain, cost) for n, (gain, cost) in enumerate(items)], need, most)
    sets = [c for count in range(1, min(most, len(items)) + 1) for c in combinations(items, count) if sum(g for g, _ in c) >= need]
    expected = min((sum(cost for _, cost in c) for c in sets), default=None)
    assert (found.cost if found else None) == expected
    if found:
        assert sum(items[n][0] for n in found.victims) >= need and len(found.victims) <= most


@settings(max_examples=examples(150))
@given(st.lists(st.integers(0, 3000), min_size=2, max_size=6), st.integers(2, 6))
def test_a_gang_on_whole_nodes_takes_the_cheapest_ones(unsaved_s: list[int], want: int) -> None:
    """One gang on each node: cost per device is then the same order as cost, and greedy is exact."""
    book = fleet(len(unsaved_s))
    for number, seconds in enumerate(unsaved_s, 1):
        run(book, waiting(number, 8, priority=90), saved_ms=NOW_MS - seconds * 1000)
    job = waiting(99, 8 * want, priority=10)
    book.put_waiting(job)
    asked = evictions(plan_preemption(book, POOL, [job], NOW_MS))
    if want > len(unsaved_s):
        assert asked == []
    else:
        losses = sorted(unsaved_s)[:want]
        assert sorted((NOW_MS - book.running[e.job_id].saved_ms) // 1000 for e in asked) == losses


@settings(max_examples=examples(150))
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_tables_decides_nothing(world: tuple[Book, list[Waiting]], random) -> None:  # type: ignore[no-untyped-def]
    book, asking = world
    other = book.fork()
    for table in (other.running, other.claims, other.reservations):
        rows = list(table.items())
        random.shuffle(rows)
        table.clear()
        table.update(rows)  # type: ignore[arg-type]
    assert plan_preemption(book, POOL, asking, NOW_MS) == plan_preemption(other, POOL, asking, NOW_MS)
