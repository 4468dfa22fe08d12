"""Fragmentation: the measure by hand, the mix of usual needs, and what packing by it gains on a small fleet."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.shapes import simple
from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.demand_mix import COVERED_PERCENT, MAX_COUNT, MAX_ENTRIES, Mix, Usual
from trainhouse.scheduler.core.cluster.fragmentation import fragments
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.node_states import UNREPORTED, State
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Block, Shape

FRAGMENTATION, BEST_FIT = Packing.FRAGMENTATION, Packing.BEST_FIT


def test_fragments_are_what_usual_jobs_cannot_use() -> None:
    state = State(1, (200, 700), 4000, UNREPORTED)
    whole, pair = Usual((), 1, 1000), Usual((), 2, 1000)
    half, large = Usual((), 1, 500), Usual((), 1, 800)
    other, hungry = Usual(("B",), 1, 1000), Usual((), 1, 1000, cpus_milli=5000)
    assert fragments("A", state, ((whole, 1),)) == 900
    assert fragments("A", state, ((pair, 1),)) == 1900
    assert fragments("A", state, ((half, 1),)) == 200
    assert fragments("A", State(0, (200, 700), 4000, UNREPORTED), ((large, 1),)) == 900
    assert fragments("A", state, ((other, 1),)) == fragments("A", state, ((hungry, 1),)) == 1900
    assert fragments("A", state, ((whole, 3), (half, 2))) == 3 * 900 + 2 * 200


def test_a_share_goes_where_the_usual_job_still_fits_afterwards() -> None:
    cluster = Cluster()
    for i in range(2):
        cluster.put_node(NodeSlots(i, f"n{i}", "p", ("H",) * 2))
    cluster.set_free(0, 0, {0: 800})
    cluster.set_free(1, 0, {0: 600})
    for _ in range(20):
        cluster.mix.seen(simple("p", 1, "H", milli=600))
    small = simple("p", 1, "H", milli=200)
    by_fragments, by_fit = place(cluster, small, FRAGMENTATION), place(cluster, small, BEST_FIT)
    assert by_fragments is not None and by_fragments[0].node == 0
    assert by_fit is not None and by_fit[0].node == 1


def test_gangs_of_several_nodes_are_placed_under_every_packing() -> None:
    for packing in Packing:
        cluster = Cluster()
        for i in range(4):
            cluster.put_node(NodeSlots(i, f"n{i}", "p", ("H",) * 8))
        placement = place(cluster, simple("p", 24), packing)
        assert placement is not None and [p.ranks for p in placement] == [8, 8, 8]


def test_packing_by_fragmentation_allocates_no_less_than_best_fit() -> None:
    """The paper's method on a small fleet with the mix of a production trace; means over seeds."""
    kinds = [simple("p", 1, milli=m) for m in (1000, 810, 470, 320, 650, 230)] + [simple("p", n) for n in (2, 4, 8)]
    weights = [3911, 1078, 750, 328, 253, 140, 16, 15, 44]
    done = {packing: sum(_fill(kinds, weights, packing, seed) for seed in range(6)) for packing in (FRAGMENTATION, BEST_FIT)}
    assert done[FRAGMENTATION] >= done[BEST_FIT]


def _fill(kinds: list[Shape], weights: list[int], packing: Packing, seed: int) -> int:
    rng, cluster = random.Random(seed), Cluster()
    for i in range(24):
        cluster.put_node(NodeSlots(i, f"n{i}", "p", ("H",) * 8))
    for shape, weight in zip(kinds, weights, strict=True):
        for _ in range(weight // 10):
            cluster.mix.seen(shape)
    arrived = taken = 0
    while arrived * 10 < 24 * 8 * 1000 * 13:
        shape = rng.choices(kinds, weights)[0]
        arrived += shape.ranks * shape.milli
        placement = place(cluster, shape, packing)
        if placement is not None:
            cluster.take(placement, shape)
            taken += shape.ranks * shape.milli
    return taken


def test_the_mix_is_bounded_and_forgets() -> None:
    mix = Mix()
    for i in range(3 * MAX_ENTRIES):
        mix.seen(simple("p", i + 1))
    assert len(mix.counts) <= MAX_ENTRIES
    for _ in range(12 * MAX_COUNT):
        mix.seen(simple("p", 1, milli=500))
    assert mix.typical[0][0] == Usual((), 1, 500) and sum(mix.counts.values()) <= 2 * MAX_COUNT + MAX_ENTRIES
    assert set(mix.counts) == {Usual((), 1, 500)}


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from((300, 1000))), max_size=600), st.integers(0, 600))
def test_a_mix_goes_on_from_its_table_as_if_it_had_never_stopped(asked: list[tuple[int, int]], cut: int) -> None:
    shapes = [simple("p", 1 if milli < 1000 else n, milli=milli) for n, milli in asked]
    through, first = Mix(), Mix()
    for shape in shapes:
        through.seen(shape)
    for shape in shapes[:cut]:
        first.seen(shape)
    later = Mix(first.table())
    for shape in shapes[cut:]:
        later.seen(shape)
    assert later.table() == through.table()
    through.review()
    covered = sum(through.counts[usual] for usual, _ in through.typical) * 100
    assert covered >= sum(through.counts.values()) * COVERED_PERCENT


def test_cpus_of_ranks_count_towards_what_is_usual() -> None:
    mix = Mix()
    mix.seen(Shape("p", (Block(2, ("B", "A"), cpus=1.5, memory_bytes=7),)))
    assert mix.typical == ((Usual(("A", "B"), 2, 1000, 3000, 14), 2000),)


def test_a_node_that_changes_its_devices_is_judged_by_the_new_ones() -> None:
    for packing in (FRAGMENTATION, BEST_FIT):
        cluster = Cluster()
        for i in range(2):
            cluster.put_node(NodeSlots(i, f"n{i}", "p", ("A",) * 2))
        assert place(cluster, simple("p", 2, "A"), packing) is not None
        cluster.put_node(NodeSlots(0, "n0", "p", ("B",) * 2))
        cluster.put_node(NodeSlots(1, "n1", "p", ("A",) * 2, open=False))
        assert place(cluster, simple("p", 2, "A"), packing) is None
        placement = place(cluster, simple("p", 2, "B"), packing)
        assert placement is not None and placement[0].node == 0
