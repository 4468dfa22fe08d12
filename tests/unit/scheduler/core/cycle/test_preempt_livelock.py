"""Under constant demand evictions come to an end; what waits for good reason starts when it can."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.preempt_world import NOW_MS, POOL, PREEMPTING, cycle, devices, evictions, fleet, leave, node, run, waiting
from tests.support.profiles import examples
from trainhouse.events.model.policy import Backfill, Blocking, Defragmentation, Elastic, Order, Preemption, SchedulingPolicy, Team
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Waiting

SAVE_MS, STEP_MS = 30_000, 60_000


@dataclass
class Demand:
    """Jobs that never end, on a fleet under virtual time. Whoever is asked leaves after its save, and waits again."""

    book: Book
    now_ms: int = NOW_MS
    at_ms: list[int] = field(default_factory=list)

    def go(self, cycles: int) -> None:
        for _ in range(cycles):
            for job_id, running in sorted(self.book.running.items()):
                if running.leaving_ms is not None and running.leaving_ms - 120_000 + SAVE_MS <= self.now_ms:
                    leave(self.book, job_id, self.now_ms)
                elif running.leaving_ms is None and (self.now_ms - running.started_ms) % 600_000 < STEP_MS:
                    self.book.put_running(replace(running, saved_ms=self.now_ms), self.now_ms)
            actions = cycle(self.book, self.now_ms)
            self.at_ms.extend(self.now_ms for _ in evictions(actions))
            self._no_device_twice()
            self.now_ms += STEP_MS

    def _no_device_twice(self) -> None:
        seen: set[tuple[int, int]] = set()
        for running in self.book.running.values():
            assert not seen & devices(running.placement)
            seen |= devices(running.placement)

    def quiet_for(self) -> int:
        """Cycles since the last eviction."""
        return (self.now_ms - self.at_ms[-1]) // STEP_MS if self.at_ms else 1_000_000


def demand(policy: SchedulingPolicy, jobs: list[Waiting], nodes: int = 2) -> Demand:
    book = fleet(nodes, 8, policy)
    for job in jobs:
        book.put_waiting(job)
    return Demand(book)


def policy_of(order: Order = Order.SCORE, teams: tuple[Team, ...] = (), margin: float = 10.0) -> SchedulingPolicy:
    return PREEMPTING.model_copy(update={"order": order, "teams": teams, "preemption": Preemption(enabled=True, margin=margin)})


@pytest.mark.parametrize("order", [Order.SCORE, Order.FAIR, Order.SUBMIT, Order.REMAINING])
@pytest.mark.parametrize("guaranteed", [0, 8, 16])
def test_two_queues_do_not_preempt_each_other_for_ever(order: Order, guaranteed: int) -> None:
    """Each team could fill the fleet; each is over its share whenever it holds it; shares go up and down for 1,000 cycles."""
    teams = tuple(Team(name=t, guaranteed={"any": guaranteed} if t == "a" or guaranteed == 8 else {}) for t in "ab")
    hours = 3_600_000
    jobs = [waiting(n, 8 if n % 3 else 4, team="ab"[n % 2], priority=(10, 50, 90)[n % 3], run_ms=(50 + n) * hours) for n in range(12)]
    world = demand(policy_of(order, teams), [])
    for job in sorted(jobs, key=lambda j: (-j.priority, -j.number)):
        world.book.put_waiting(job)
        world.go(20)
    stopped = len(world.at_ms)
    assert stopped > 0, "those that came last outrank those that run"
    world.go(1000)
    assert world.quiet_for() > 900, f"{len(world.at_ms)} evictions, the last {world.quiet_for()} cycles ago"
    assert not world.book.claims


@settings(max_examples=examples(40))
@given(st.data())
def test_evictions_end_whatever_the_demand(data: st.DataObject) -> None:
    teams = tuple(
        Team(name=name, guaranteed={"any": data.draw(st.sampled_from([0, 4, 8]))}, parent=parent)
        for name, parent in (("org", None), ("a", "org"), ("b", "org"), ("c", None))
    )
    policy = policy_of(data.draw(st.sampled_from(list(Order))), teams, data.draw(st.sampled_from([0.0, 5.0])))
    policy = policy.model_copy(
        update={
            "defragmentation": Defragmentation(enabled=data.draw(st.booleans())),
            "blocking": data.draw(st.sampled_from(list(Blocking))),
            "backfill": Backfill(reservations=2),
        }
    )
    jobs = []
    for number in range(data.draw(st.integers(2, 12))):
        ranks = data.draw(st.sampled_from([1, 2, 4, 6, 8, 12, 16]))
        more = {"min_ranks": max(1, ranks // 4)} if data.draw(st.booleans()) else {}
        run_ms = data.draw(st.sampled_from([None, 10**9, 10**10, 10**11]))
        team, priority = data.draw(st.sampled_from("abc")), data.draw(st.sampled_from([0, 20, 40]))
        jobs.append(waiting(number, ranks, team=team, priority=priority, run_ms=run_ms, **more))
    world = demand(policy, jobs)
    world.go(300)
    assert world.quiet_for() > 100, f"{len(world.at_ms)} evictions, the last {world.quiet_for()} cycles ago"
    assert not world.book.claims, "a claim that nobody starts on"


def test_a_gang_is_not_stuck_below_its_size_after_a_node_comes_back() -> None:
    policy = policy_of().model_copy(update={"elastic": Elastic(grow_after_s=300)})
    book = fleet(2, 8, policy)
    run(book, waiting(1, 16, min_ranks=8))
    leave(book, "j1", NOW_MS)
    book.put_node(node(1, is_open=False))
    world = Demand(book)
    world.go(20)
    assert book.running["j1"].ranks == 8
    book.put_node(node(1))
    world.go(20)
    assert book.running["j1"].ranks == 16


def test_a_gang_below_its_minimum_waits_and_starts_when_the_node_comes_back() -> None:
    book = fleet(2)
    book.put_node(node(1, is_open=False))
    book.put_waiting(waiting(1, 16, min_ranks=12))
    world = Demand(book)
    world.go(10)
    assert not book.running
    book.put_node(node(1))
    world.go(2)
    assert book.running["j1"].ranks == 16


def test_a_claim_on_a_lost_node_is_dropped_and_its_gang_finds_another_place() -> None:
    book = fleet(2)
    for number in (1, 2):
        run(book, waiting(number, 8, priority=90), saved_ms=NOW_MS - number * 1000)
    book.put_waiting(waiting(3, 8, priority=0))
    world = Demand(book)
    world.go(1)
    (lost,) = [r for r in book.running.values() if r.leaving_ms is not None]
    book.put_node(node(lost.placement[0].node, is_open=False))
    world.go(10)
    assert "j3" in book.running and not book.claims


def test_one_impossible_gang_blocks_neither_preemption_nor_growth() -> None:
    book = fleet(2)
    run(book, waiting(1, 16, priority=90, min_ranks=4), ranks=8)
    book.put_waiting(waiting(2, 999, priority=0))
    world = Demand(book)
    world.go(5)
    assert book.running["j1"].ranks == 16
    book.put_waiting(waiting(3, 8, priority=10))
    world.go(15)
    assert "j3" in book.running and POOL in book.pools()
