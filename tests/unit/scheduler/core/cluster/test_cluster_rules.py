"""The cluster's rules, case by case."""

import pytest

from tests.support.shapes import simple
from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.node_filters import FilterResult
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Block, Placement, Shape
from trainhouse.scheduler.core.cluster.unschedulable import most_ranks, refusals

TOPOLOGY, STRICT = Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE


def fleet(free: list[int], *, rack: int = 4, pod: int = 8, **more: object) -> Cluster:
    """Nodes of 8 with so many free devices each, in racks and pods of so many nodes."""
    cluster = Cluster()
    for i, count in enumerate(free):
        domains = (("rack", f"r{i // rack}"), ("pod", f"p{i // pod}"))
        cluster.put_node(NodeSlots(i, f"n{i}", "p", ("H",) * 8, (80,) * 8, **{"domains": domains, **more}))  # type: ignore[arg-type]
        cluster.set_free(i, (1 << 8) - (1 << 8 - count), {}, float(more.get("cpus", 0)), 0)  # type: ignore[arg-type]
    return cluster


def put(placement: Placement | None) -> list[tuple[int, int]] | None:
    return None if placement is None else [(p.node, p.ranks) for p in placement]


@pytest.mark.parametrize(
    ("free", "ranks", "expected"),
    [
        ([8, 5, 3, 3], 3, [(2, 3)]),
        ([8, 5, 3, 3], 4, [(1, 4)]),
        ([4, 8, 8, 6], 8, [(1, 8)]),
        ([7, 8, 5, 8], 16, [(1, 8), (3, 8)]),
        ([7, 8, 5, 8], 20, [(1, 8), (3, 8), (0, 4)]),
        ([8, 8, 8, 5], 20, [(0, 8), (1, 8), (2, 4)]),
        ([8, 7, 7, 7], 16, None),
        ([8, 3, 3, 3], 12, None),
        ([7, 7, 7, 7], 8, None),
    ],
)
def test_strict_consolidation_takes_whole_nodes_and_one_remainder(free: list[int], ranks: int, expected: object) -> None:
    assert put(place(fleet(free), simple("p", ranks, "H"), STRICT)) == expected


@pytest.mark.parametrize(
    ("free", "ranks", "expected"),
    [
        ([8, 5, 3, 3], 3, [(2, 3)]),
        ([8, 8, 8, 8], 12, [(0, 6), (1, 6)]),
        ([8, 4, 8, 8], 13, [(0, 8), (2, 5)]),
        ([8, 5, 8, 8], 13, [(0, 8), (1, 5)]),
        ([8, 4, 1, 1], 12, [(0, 8), (1, 4)]),
        ([8, 8, 6, 6], 12, [(2, 6), (3, 6)]),
        ([8, 8, 8, 8, 8, 8, 8, 1], 24, [(4, 8), (5, 8), (6, 8)]),
        ([8, 8, 0, 0, 8, 8, 8, 8], 32, [(4, 8), (5, 8), (6, 8), (7, 8)]),
        ([8, 8, 8, 0, 8, 8, 8, 0, 8, 8, 8, 0], 40, [(0, 8), (1, 8), (2, 8), (4, 8), (5, 8)]),
        ([1] * 12, 12, [(i, 1) for i in range(12)]),
        ([1] * 12, 13, None),
    ],
)
def test_topology_takes_the_fewest_domains_then_the_fewest_nodes_evenly(free: list[int], ranks: int, expected: object) -> None:
    assert put(place(fleet(free), simple("p", ranks, "H"), TOPOLOGY)) == expected


def test_an_empty_rack_stays_empty_while_others_have_room() -> None:
    cluster = fleet([8] * 12)
    first = place(cluster, simple("p", 8, "H"), TOPOLOGY)
    assert first is not None
    cluster.set_free(0, 0xFF)
    cluster.set_free(5, 0x0F)
    placement = place(cluster, simple("p", 8, "H"), TOPOLOGY)
    assert put(placement) == [(4, 8)]


def test_a_required_level_holds_and_a_preferred_one_gives_way() -> None:
    cluster = fleet([8, 8, 4, 4, 8, 8, 8, 4])
    assert put(place(cluster, simple("p", 28, "H", require="rack"), TOPOLOGY)) == [(4, 8), (5, 8), (6, 8), (7, 4)]
    assert place(cluster, simple("p", 29, "H", require="rack"), TOPOLOGY) is None
    wide = place(cluster, simple("p", 29, "H", prefer="rack"), TOPOLOGY)
    assert wide is not None and sum(p.ranks for p in wide) == 29
    assert place(cluster, simple("p", 9, "H", require="node"), TOPOLOGY) is None
    assert place(cluster, simple("p", 2, "H", require="room"), TOPOLOGY) is None
    assert cluster.levels("p") == {"node", "rack", "pod"}


def test_ranks_of_a_group_stay_within_one_nvlink_domain() -> None:
    halves = fleet([8, 8, 8], nvlink=("a",) * 4 + ("b",) * 4)
    halves.set_free(0, 0b0111_0111)
    placement = place(halves, simple("p", 8, "H", group=4), TOPOLOGY)
    assert put(placement) == [(1, 8)]
    assert [p.devices for p in place(halves, simple("p", 3, "H", require="nvlink"), TOPOLOGY) or ()] == [0b111]
    assert place(halves, simple("p", 5, "H", require="nvlink"), TOPOLOGY) is None


def test_a_group_larger_than_a_node_uses_an_nvlink_domain_of_several() -> None:
    cluster = Cluster()
    for i in range(6):
        cluster.put_node(NodeSlots(i, f"n{i}", "p", ("G",) * 4, domains=(("nvlink", f"v{i // 3}"), ("rack", "r0"))))
    assert put(place(cluster, simple("p", 16, "G", group=8), TOPOLOGY)) == [(0, 4), (1, 4), (3, 4), (4, 4)]
    assert place(cluster, simple("p", 24, "G", group=8), TOPOLOGY) is None
    assert put(place(cluster, simple("p", 12, "G", require="nvlink"), TOPOLOGY)) == [(0, 4), (1, 4), (2, 4)]


def test_roles_follow_each_other_and_each_gets_its_type() -> None:
    cluster = Cluster()
    for i in range(4):
        cluster.put_node(NodeSlots(i, f"n{i}", "p", ("A",) * 4 + ("B",) * 4, domains=(("rack", f"r{i // 2}"),), cpus=16.0))
    one_node = Shape("p", (Block(2, ("A",), role="learner"), Block(3, ("B",), role="actor")))
    assert place(cluster, one_node, TOPOLOGY) is not None and put(place(cluster, one_node, TOPOLOGY)) == [(0, 5)]
    rack = Shape("p", (Block(4, ("A",), role="learner"), Block(8, ("B",), role="actor")), require="rack")
    assert put(place(cluster, rack, TOPOLOGY)) == [(0, 8), (1, 4)]
    same = Shape("p", (Block(2, ("A",), role="x"), Block(2, ("A",), role="y")))
    assert put(place(cluster, same, TOPOLOGY)) == [(0, 4)]
    cpus = Shape("p", (Block(1, ("A",), cpus=12, role="x"), Block(4, ("A",), cpus=2, role="y")))
    placement = place(cluster, cpus, TOPOLOGY)
    assert placement is not None and sum(p.ranks for p in placement) == 5 and len(placement) == 2
    cluster.take(placement, cpus)
    assert min(cluster.cpus_milli) >= 0
    cluster.give(placement, cpus)
    assert cluster.cpus_milli == [16000] * 4


def test_cpus_and_memory_limit_nodes_that_tell_them() -> None:
    cluster = fleet([8, 8, 8], cpus=10.0)
    assert put(place(cluster, Shape("p", (Block(4, ("H",), cpus=5.0),)), TOPOLOGY)) == [(0, 2), (1, 2)]
    assert place(cluster, Shape("p", (Block(7, ("H",), cpus=5.0),)), TOPOLOGY) is None
    assert most_ranks(cluster, Shape("p", (Block(7, ("H",), cpus=5.0),)), TOPOLOGY) == 6


def test_shares_go_on_the_fullest_shared_device_and_keep_gangs_off() -> None:
    cluster = fleet([8, 2])
    small, large = simple("p", 1, "H", milli=300), simple("p", 1, "H", milli=600)
    placements = []
    for shape in (large, small, small):
        placement = place(cluster, shape, TOPOLOGY)
        assert placement is not None
        cluster.take(placement, shape)
        placements.append((placement, shape))
    assert [(p[0][0].node, p[0][0].devices) for p in placements] == [(1, 0b0100_0000), (1, 0b0100_0000), (1, 0b1000_0000)]
    assert cluster.free("p") == 8 and put(place(cluster, simple("p", 8, "H"), TOPOLOGY)) == [(0, 8)]
    for placement, shape in placements:
        cluster.give(placement, shape)
    assert cluster.free("p") == 10 and not cluster.shares


def test_a_closed_node_keeps_what_is_taken_and_gives_nothing() -> None:
    cluster = fleet([8, 8])
    gang = simple("p", 8, "H")
    placement = place(cluster, gang, TOPOLOGY)
    assert placement is not None and put(placement) == [(0, 8)]
    cluster.take(placement, gang)
    closed = cluster.layout.slots[0]
    assert closed is not None
    cluster.put_node(NodeSlots(**{f: getattr(closed, f) for f in NodeSlots.__slots__ if f != "open"}, open=False))
    cluster.give(placement, gang)
    assert cluster.free("p") == 8 and cluster.total("p") == 16 and cluster.node_mask("p") == 3
    assert place(cluster, simple("p", 16, "H"), TOPOLOGY) is None and most_ranks(cluster, simple("p", 16, "H"), TOPOLOGY) == 16
    assert dict(refusals(cluster, simple("p", 16, "H"), TOPOLOGY).counts) == {FilterResult.CLOSED: 1, FilterResult.ROOM: 1}
    cluster.put_node(closed)
    assert cluster.free("p") == 16


def test_refusals_name_what_each_node_lacks() -> None:
    cluster = Cluster()
    base = {"types": ("A",) * 2, "memory_bytes": (40,) * 2, "labels": (("zone", "z"),), "cpus": 8.0, "memory": 100}
    kinds: list[dict[str, object]] = [
        {},
        {"types": ("B",) * 2},
        {"memory_bytes": (20,) * 2},
        {"labels": ()},
        {"spot": True},
        {"cpus": 2.0},
        {"memory": 5},
        {"open": False},
        {},
        {},
    ]
    for i, kind in enumerate(kinds):
        cluster.put_node(NodeSlots(i, f"n{i}", "p", **{**base, **kind}))  # type: ignore[arg-type]
    cluster.set_free(8, 0, {}, 8.0, 100)
    shape = Shape("p", (Block(9, ("A",), 40, 4.0, 10),), labels=(("zone", "z"),), spot=False)
    pair = place(cluster, Shape("p", (Block(2, ("A",), 40, 4.0, 10),), labels=(("zone", "z"),), spot=False), TOPOLOGY)
    assert pair is not None
    cluster.claim(pair)
    found = refusals(cluster, shape, TOPOLOGY)
    expected = ("ROOM", "OTHER_TYPE", "DEVICE_MEMORY", "LABEL", "SPOT", "CPUS", "MEMORY", "CLOSED", "FULL", "CLAIMED")
    assert dict(found.counts) == {FilterResult(name): 1 for name in expected}
    assert (found.needs, found.room, found.largest, found.fits) == (9, 2, 2, False)
    assert most_ranks(cluster, shape, TOPOLOGY) == 8


def test_gangs_of_any_size_fit_a_fork_without_touching_the_cluster() -> None:
    cluster = fleet([8] * 4)
    fork, gang = cluster.fork(), simple("p", 32, "H")
    placement = place(fork, gang, TOPOLOGY)
    assert placement is not None
    fork.take(placement, gang)
    fork.put_node(NodeSlots(4, "n4", "p", ("H",) * 8))
    assert (fork.free("p"), cluster.free("p"), fork.total("p"), cluster.total("p")) == (8, 32, 40, 32)
