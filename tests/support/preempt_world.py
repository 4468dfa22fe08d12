"""A small fleet with running and waiting gangs, a driver under virtual time, and checkers that share no code with the planner."""

from dataclasses import replace

from tests.support.shapes import simple
from trainhouse.events.model.policy import Elastic, Preemption, SchedulingPolicy
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Placement, Shape
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.claims import start_claimed
from trainhouse.scheduler.core.cycle.defragment import plan_moves
from trainhouse.scheduler.core.cycle.elastic import plan_elastic
from trainhouse.scheduler.core.cycle.preemption.preempt import plan_preemption
from trainhouse.scheduler.core.cycle.queue_pass import place_waiting
from trainhouse.scheduler.core.queue.entries import Action, Evict, Hold, Running, Waiting

POOL, TYPE = "p", "h100"
HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
PREEMPTING = SchedulingPolicy(preemption=Preemption(enabled=True, min_run_s=600), elastic=Elastic(enabled=True))


def fleet(nodes: int, devices: int = 8, policy: SchedulingPolicy = PREEMPTING, racks: int = 0) -> Book:
    """A book of one pool with idle nodes; `racks`: nodes in each rack."""
    book = Book()
    for index in range(nodes):
        book.put_node(node(index, devices, racks))
    book.set_policy(POOL, policy, 0)
    return book


def node(index: int, devices: int = 8, racks: int = 0, *, is_open: bool = True) -> NodeSlots:
    domains = (("rack", f"r{index // racks}"),) if racks else ()
    return NodeSlots(index, f"n{index}", POOL, (TYPE,) * devices, domains=domains, open=is_open)


def waiting(number: int, ranks: int, *, team: str = "a", priority: int = 50, run_ms: int | None = None, **more: object) -> Waiting:
    shape = simple(POOL, ranks, TYPE, **more)
    return Waiting(f"j{number}", number, team, priority, shape, NOW_MS - HOUR_MS, NOW_MS - HOUR_MS, run_ms=run_ms)


def run(book: Book, job: Waiting, *, placement: Placement | None = None, started_ms: int = NOW_MS - HOUR_MS, **more: int) -> Running:
    """Starts a gang as if long ago, on the whole of its size or on `ranks`."""
    ranks = more.pop("ranks", None)
    where = placement or place(book.cluster, job.shape, book.policy(POOL).packing, ranks=ranks)
    assert where is not None, f"no room for {job.job_id}"
    book.cluster.take(where, job.shape)
    saved_ms = more.pop("saved_ms", started_ms)
    ends_ms = None if job.run_ms is None else started_ms + job.run_ms
    running = Running(job, where, started_ms, ends_ms, saved_ms, **more)
    book.put_running(running, started_ms)
    return running


def leave(book: Book, job_id: str, now_ms: int, *, again: bool = True) -> None:
    """A running gang goes: its devices come free, and it waits again if `again`."""
    running = book.running[job_id]
    book.cluster.give(running.placement, running.job.shape)
    book.remove(job_id, now_ms)
    if again:
        book.put_waiting(replace(running.job, since_ms=now_ms))


def cycle(book: Book, now_ms: int) -> list[Action]:
    """All of a cycle, in its order."""
    actions = start_claimed(book, POOL, now_ms)
    actions += place_waiting(book, POOL, now_ms)
    actions += plan_preemption(book, POOL, in_line(book), now_ms)
    actions += plan_elastic(book, POOL, now_ms)
    actions += plan_moves(book, POOL, in_line(book), now_ms)
    return actions


def in_line(book: Book) -> list[Waiting]:
    return sorted((j for j in book.lanes.jobs(POOL) if j.job_id not in book.claims), key=lambda j: (j.priority, j.number))


def evictions(actions: list[Action]) -> list[Evict]:
    return [a for a in actions if isinstance(a, Evict)]


def claims(actions: list[Action]) -> dict[str, Placement]:
    return {a.claim.job_id: a.claim.placement for a in actions if isinstance(a, Hold)}


# ---- checkers: devices as plain (node, position) pairs


def devices(placement: Placement) -> set[tuple[int, int]]:
    return {(part.node, p) for part in placement for p in range(64) if part.devices >> p & 1}


def judge(before: Book, after: Book, actions: list[Action], now_ms: int) -> None:
    """All that must hold of one plan, whatever it was for."""
    rules = before.policy(POOL).preemption
    held, asked = claims(actions), evictions(actions)
    assert len({e.job_id for e in asked}) == len(asked), "a gang is asked twice"
    for evict in asked:
        victim = before.running[evict.job_id]
        assert victim.leaving_ms is None and victim.job.preemptible, f"{evict.job_id} is protected"
        assert evict.for_job in held, f"{evict.job_id} leaves for {evict.for_job}, which has no claim"
        assert after.running[evict.job_id].leaving_ms == evict.deadline_ms >= now_ms
        if evict.for_job != evict.job_id:
            assert devices(victim.placement) & {d for c in held.values() for d in devices(c)}, f"{evict.job_id} leaves for nothing"
            assert now_ms - victim.started_ms >= rules.min_run_s * 1000, f"{evict.job_id} had not its time"
    load: dict[tuple[int, int], int] = {}
    for claim in after.claims.values():
        add(load, claim.placement)
    assert max(load.values(), default=0) <= 1000, "a device is claimed twice"
    for running in after.running.values():
        if running.leaving_ms is None:
            add(load, running.placement)
    assert max(load.values(), default=0) <= 1000, "claimed devices belong to a gang that stays"


def add(load: dict[tuple[int, int], int], placement: Placement) -> None:
    """Thousandths by device."""
    for part in placement:
        for device in devices((part,)):
            load[device] = load.get(device, 0) + part.milli


def all_start(after: Book, actions: list[Action], now_ms: int) -> None:
    """When those who were asked have left, every claim starts as a whole."""
    book = after.fork()
    for job_id in [i for i, r in book.running.items() if r.leaving_ms is not None]:
        leave(book, job_id, now_ms + 1)
    start_claimed(book, POOL, now_ms + 1)
    for job_id, placement in claims(actions).items():
        assert job_id in book.running, f"{job_id} did not start on what was claimed for it"
        assert book.running[job_id].placement == placement
        shape: Shape = book.running[job_id].job.shape
        assert shape.least_ranks <= book.running[job_id].ranks <= shape.ranks
    load: dict[tuple[int, int], int] = {}
    for running in book.running.values():
        add(load, running.placement)
    assert max(load.values(), default=0) <= 1000, "a device is in two gangs"


def snapshot(book: Book) -> tuple[object, ...]:
    """All that a failed plan must leave as it was."""
    cluster, tables = book.cluster, (dict(book.running), dict(book.claims), dict(book.reservations))
    return (*tables, list(cluster.idle), list(cluster.free_bits), dict(cluster.claimed), book.moves_ms)
