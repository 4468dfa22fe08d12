"""Sizes of elastic gangs whose ranks stand in groups or replicas: whole ones only, at a start, at growth and at shrinkage."""

from dataclasses import replace
from math import lcm

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.core_world import spec
from tests.support.preempt_world import NOW_MS, POOL, cycle, fleet, run, waiting
from tests.support.profiles import examples
from trainhouse.scheduler.core.cluster.describe import needs
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import ranks_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Evict, Hold, Start
from trainhouse.scheduler.core.queue.entries import Waiting as Job
from trainhouse.scheduler.core.state.demand import shape_of


def of_steps(job: Job, group: int, replica: int, batch: int = 0) -> Job:
    return replace(job, shape=replace(job.shape, group=group, replica=replica, batch=batch))


def sizes(book: Book) -> dict[str, list[int]]:
    """Numbers of ranks that one cycle gives, by job."""
    found: dict[str, list[int]] = {}
    for action in cycle(book, NOW_MS):
        if isinstance(action, Start):
            found.setdefault(action.job_id, []).append(ranks_of(action.placement))
        elif isinstance(action, Hold):
            found.setdefault(action.claim.job_id, []).append(ranks_of(action.claim.placement))
        elif isinstance(action, Evict) and action.ranks:
            found.setdefault(action.job_id, []).append(action.ranks)
    return found


def test_what_a_layout_asks_of_placement() -> None:
    elastic = {"ranks": 16, "min_ranks": 8}
    shape = shape_of(spec(gang=elastic, parallelism={"dp": 4, "tp": 2, "pp": 2}))
    assert (shape.group, shape.replica, shape.step, shape.min_ranks) == (2, 4, 4, 8)
    assert needs(shape).startswith("8 to 16 devices in steps of 4, each 2 consecutive ranks")
    assert needs(shape_of(spec(gang=elastic))).startswith("8 to 16 devices")
    assert "steps" not in needs(shape_of(spec(gang=elastic))) + needs(shape_of(spec(gang=8, parallelism={"tp": 8})))
    plain = shape_of(spec(gang=elastic | {"group_ranks": 4}))
    assert (plain.group, plain.replica, plain.step) == (4, 1, 4)


def test_an_elastic_gang_of_groups_starts_with_whole_ones() -> None:
    book = fleet(1)
    run(book, waiting(1, 3))
    book.put_waiting(of_steps(waiting(2, 8, min_ranks=2), 2, 1))
    assert sizes(book) == {"j2": [4]}, "five devices are free"


def test_what_a_global_batch_asks_of_placement() -> None:
    batch = {"global_batch": 48, "micro_batch": 2}
    shape = shape_of(spec(gang={"ranks": 8, "min_ranks": 2}, training=batch))
    assert (shape.batch, list(shape.sizes(1, 100))) == (24, [1, 2, 3, 4, 6, 8, 12, 24])
    assert needs(shape).startswith("2 to 8 devices in sizes that divide 24")
    laid_out = shape_of(spec(gang={"ranks": 16, "min_ranks": 4}, parallelism={"dp": 4, "fsdp": 2, "tp": 2}, training=batch))
    assert (laid_out.batch, list(laid_out.sizes(4, 16))) == (48, [4, 8, 12, 16])
    assert shape_of(spec(gang=4, training=batch)) == shape_of(spec(gang=4)), "its size never changes"


def test_an_elastic_gang_starts_with_the_largest_size_that_keeps_its_batch() -> None:
    book = fleet(1)
    run(book, waiting(1, 3))
    book.put_waiting(of_steps(waiting(2, 8, min_ranks=1), 1, 1, 8))
    assert sizes(book) == {"j2": [4]}, "five devices are free, and 5 does not divide 8"


@settings(max_examples=examples(60))
@given(
    group=st.sampled_from([1, 2, 4]),
    replica=st.integers(1, 6),
    most=st.integers(1, 5),
    running=st.integers(1, 5),
    others=st.lists(st.integers(1, 9), max_size=4),
    queue=st.lists(st.integers(1, 12), max_size=2),
    factor=st.sampled_from([0, 1, 2, 12]),
)
def test_every_size_that_is_chosen_is_of_whole_groups_and_replicas_and_keeps_the_batch(
    group: int, replica: int, most: int, running: int, others: list[int], queue: list[int], factor: int
) -> None:
    step = lcm(group, replica)
    batch = factor * step * most
    running = next(size for size in range(running, 0, -1) if batch % (size * step) == 0)
    book = fleet(4)
    for number, ranks in enumerate(others, 10):
        if ranks <= book.cluster.free(POOL):
            run(book, waiting(number, ranks))
    elastic = of_steps(waiting(1, step * most, min_ranks=step), group, replica, batch)
    if running <= most and (placement := place(book.cluster, elastic.shape, book.policy(POOL).packing, ranks=running * step)):
        run(book, elastic, placement=placement)
    else:
        book.put_waiting(elastic)
    for number, ranks in enumerate(queue, 20):
        book.put_waiting(waiting(number, ranks, priority=10))
    chosen = sizes(book).get("j1", [])
    assert all(batch % ranks == 0 and ranks % step == 0 and step <= ranks <= step * most for ranks in chosen)
