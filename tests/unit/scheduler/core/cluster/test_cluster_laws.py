"""Laws of the cluster, against a model of sets that is written here and knows no masks."""

from dataclasses import dataclass, field
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import WHOLE, Block, Placement, Shape
from trainhouse.scheduler.core.cluster.unschedulable import most_ranks, refusals

POOL = "p"
TYPES = ("A", "B")
SIZE = 4


@dataclass
class Model:
    """Free devices as a set of (node, position); shares as thousandths left; nothing cleverer."""

    nodes: dict[int, NodeSlots]
    free: set[tuple[int, int]] = field(default_factory=set)
    left: dict[tuple[int, int], int] = field(default_factory=dict)
    claimed: set[tuple[int, int]] = field(default_factory=set)

    def usable(self) -> set[tuple[int, int]]:
        return {d for d in self.free - self.claimed if self.nodes[d[0]].open}

    def devices(self, placement: Placement) -> list[tuple[int, int]]:
        return [(p.node, at) for p in placement for at in range(SIZE) if p.devices >> at & 1]

    def take(self, placement: Placement) -> None:
        for part in placement:
            for device in self.devices((part,)):
                if part.milli < WHOLE:
                    self.left[device] = self.left.get(device, WHOLE) - part.milli
                self.free.discard(device)

    def give(self, placement: Placement) -> None:
        for part in placement:
            for device in self.devices((part,)):
                if part.milli < WHOLE:
                    self.left[device] += part.milli
                    if self.left[device] < WHOLE:
                        continue
                    del self.left[device]
                self.free.add(device)


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeSlots]:
    """A small fleet: types, memory, racks in pods, labels, spot, closed nodes, nodes of two NVLink domains, NVLink domains of two nodes."""
    out = []
    for index in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(("A", "B", "mixed")))
        types = ("A", "A", "B", "B") if kind == "mixed" else (kind,) * SIZE
        rack = draw(st.integers(0, 2))
        domains = [("rack", f"r{rack}"), ("pod", f"d{rack // 2}")] if draw(st.booleans()) else []
        nvlink: tuple[str, ...] = ()
        told = draw(st.sampled_from(("none", "halves", "woven", "pair")))
        if told == "pair":
            domains.append(("nvlink", f"v{index // 2}"))
        elif told != "none":
            nvlink = ("x", "x", "y", "y") if told == "halves" else ("x", "y", "x", "y")
        memory = tuple(draw(st.sampled_from((40, 80))) for _ in range(SIZE))
        labels = (("zone", "z"),) if draw(st.booleans()) else ()
        spot, is_open = draw(st.booleans()), draw(st.integers(0, 9)) > 0
        cpus = draw(st.sampled_from((0.0, 4.0, 9.0)))
        out.append(NodeSlots(index, f"n{index}", POOL, types, memory, tuple(domains), labels, spot, cpus, 0, is_open, nvlink))
    return out


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Gangs, gangs of two roles, and shares, with any of the constraints."""
    milli = draw(st.sampled_from((WHOLE, WHOLE, WHOLE, 300, 700)))
    group = draw(st.sampled_from((1, 1, 2, 4)))
    wanted = st.sampled_from(((), ("A",), ("B",), ("B", "A")))
    blocks = [
        Block(draw(st.integers(1, 4)) * group, draw(wanted), draw(st.sampled_from((0, 0, 80))), draw(st.sampled_from((0, 0, 1, 2.5))))
    ]
    if milli < WHOLE:
        blocks = [Block(1, *_rest(blocks[0]))]
    elif draw(st.integers(0, 3)) == 0:
        blocks.append(Block(draw(st.integers(1, 3)) * group, draw(wanted), cpus=draw(st.sampled_from((0, 1)))))
    level = st.sampled_from(("", "", "nvlink", "node", "rack", "pod"))
    labels = (("zone", "z"),) if draw(st.integers(0, 4)) == 0 else ()
    require, prefer = draw(level), draw(level)
    group = group if milli == WHOLE else 1
    return Shape(POOL, tuple(blocks), milli, require, prefer, group, labels, draw(st.booleans()))


def _rest(block: Block) -> tuple[tuple[str, ...], int, float]:
    return block.types, block.device_memory_bytes, block.cpus


def built(fleet: list[NodeSlots]) -> tuple[Cluster, Model]:
    cluster = Cluster()
    for slots in fleet:
        cluster.put_node(slots)
    model = Model({s.index: s for s in fleet})
    model.free = {(s.index, at) for s in fleet for at in range(SIZE)}
    return cluster, model


def told(cluster: Cluster) -> tuple[object, ...]:
    """All that a cluster knows of what is free."""
    bays = {
        key: (bay.by_free, bay.of_size, bay.by_left, bay.free) + ((bay.room, bay.size, bay.touched) if bay.topology is not None else ())
        for key, bay in sorted(cluster.bays.items())
    }
    return cluster.idle, cluster.free_bits, cluster.shares, cluster.claimed, cluster.cpus_milli, cluster.memory_free, bays


def domain(slots: NodeSlots, position: int, level: str) -> str:
    """The domain of one device; a node that tells none is by itself."""
    if level == "nvlink" and slots.nvlink:
        return f"{slots.node_id}/{slots.nvlink[position]}"
    return dict(slots.domains).get(level, slots.node_id) if level != "node" else slots.node_id


def check(model: Model, shape: Shape, placement: Placement, ranks: int) -> None:
    """A placement is whole, free, and obeys all that the shape asks for."""
    devices = model.devices(placement)
    assert len(devices) == ranks and len(placement) == len({p.node for p in placement})
    if shape.milli < WHOLE:
        assert devices[0] in model.usable() or (model.left.get(devices[0], 0) >= shape.milli and devices[0] not in model.claimed)
        assert model.nodes[devices[0][0]].open
    else:
        assert set(devices) <= model.usable()
    asked = [block for block in shape.blocks for _ in range(block.ranks)][:ranks]
    for slots in (model.nodes[p.node] for p in placement):
        assert set(shape.labels) <= set(slots.labels) and (shape.spot or not slots.spot)
        here = [b for (node, _), b in zip(devices, asked, strict=True) if node == slots.index]
        assert not slots.cpus or sum(b.cpus for b in here) <= slots.cpus
    for (node, at), block in zip(devices, asked, strict=True):
        slots = model.nodes[node]
        assert not block.types or slots.types[at] in block.types
        assert slots.memory_bytes[at] >= block.device_memory_bytes
    for block in shape.blocks:
        assert len({model.nodes[n].types[at] for (n, at), b in zip(devices, asked, strict=True) if b is block}) <= 1
    if shape.require:
        assert len({domain(model.nodes[n], at, shape.require) for n, at in devices}) == 1
    if len(shape.blocks) == 1:
        for first in range(0, ranks, shape.group):
            assert len({domain(model.nodes[n], at, "nvlink") for n, at in devices[first : first + shape.group]}) == 1


PACKINGS = st.sampled_from(tuple(Packing))


@settings(max_examples=examples(200))
@given(nodes(), st.lists(st.tuples(shapes(), PACKINGS, st.integers(0, 5)), max_size=12))
def test_placements_are_whole_free_and_as_asked(fleet: list[NodeSlots], steps: list[tuple[Shape, Packing, int]]) -> None:
    cluster, model = built(fleet)
    running: list[tuple[Placement, Shape]] = []
    for shape, packing, then in steps:
        cluster.mix.seen(shape)
        placement = place(cluster, shape, packing)
        if placement is not None:
            if not any(b.cpus for b in shape.blocks) or not running:
                check(model, shape, placement, shape.ranks)
            before, fork = told(cluster.fork()), cluster.fork()
            fork.take(placement, shape)
            assert told(cluster.fork())[:6] == before[:6]
            fork.give(placement, shape)
            assert told(fork) == told(cluster)
            cluster.take(placement, shape)
            model.take(placement)
            running.append((placement, shape))
        if running and then < 2:
            gone = running.pop(then % len(running))
            cluster.give(*gone)
            model.give(gone[0])
        assert {(s.index, at) for s in fleet for at in range(SIZE) if cluster.free_bits[s.index] >> at & 1} == model.usable()
        assert cluster.free(POOL) == len(model.usable())
        assert all(c >= 0 for c, s in zip(cluster.cpus_milli, fleet, strict=True) if s.cpus)


@settings(max_examples=examples(100))
@given(nodes(), st.lists(shapes(), max_size=6), st.randoms(use_true_random=False), PACKINGS)
def test_the_order_of_joining_changes_nothing(fleet: list[NodeSlots], asked: list[Shape], rng: object, packing: Packing) -> None:
    one, _ = built(fleet)
    shuffled = list(fleet)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    other, _ = built(shuffled)
    for shape in asked:
        placement = place(one, shape, packing)
        assert placement == place(other, shape, packing)
        if placement is not None:
            one.take(placement, shape)
            other.take(placement, shape)


@settings(max_examples=examples(100))
@given(nodes(), st.lists(st.integers(0, SIZE), min_size=7, max_size=7), st.integers(1, 30))
def test_a_plain_gang_fails_only_for_want_of_devices(fleet: list[NodeSlots], used: list[int], ranks: int) -> None:
    cluster, model = built(fleet)
    for slots, count in zip(fleet, used, strict=False):
        cluster.set_free(slots.index, (1 << SIZE) - (1 << count) & ((1 << SIZE) - 1))
        model.free -= {(slots.index, at) for at in range(count)}
    for device_type in TYPES:
        free = sum(1 for n, at in model.usable() if model.nodes[n].types[at] == device_type)
        placement = place(cluster, Shape(POOL, (Block(ranks, (device_type,)),)), Packing.TOPOLOGY)
        assert (placement is not None) == (free >= ranks)


@settings(max_examples=examples(100))
@given(nodes(), st.integers(1, 3), st.sampled_from((1, 2, 4)), st.sampled_from(("", "nvlink", "node", "rack", "pod")))
def test_a_gang_of_groups_fails_only_if_every_division_fails(fleet: list[NodeSlots], groups: int, group: int, require: str) -> None:
    cluster, model = built(fleet)
    shape = Shape(POOL, (Block(groups * group, ("A",)),), group=group, require=require)
    placement = place(cluster, shape, Packing.TOPOLOGY)
    homes: dict[tuple[str, str], int] = {}
    for node, at in model.usable():
        slots = model.nodes[node]
        if slots.types[at] == "A":
            key = (domain(slots, at, require) if require else "", domain(slots, at, "nvlink"))
            homes[key] = homes.get(key, 0) + 1
    woven = any(s.nvlink == ("x", "y", "x", "y") for s in fleet)
    most = max((sum(n // group for (d, _), n in homes.items() if d == scope) for scope in {d for d, _ in homes}), default=0)
    if placement is None:
        unknown = require not in ("", "nvlink", "node") and require not in cluster.levels(POOL)
        assert most < groups or unknown or (woven and group > 1) or _torn(fleet)
    else:
        assert most >= groups


def _torn(fleet: list[NodeSlots]) -> bool:
    """Whether an NVLink domain of several nodes crosses other levels, or nodes disagree on which levels there are."""
    for a, b in combinations(fleet, 2):
        same = dict(a.domains).get("nvlink", a.node_id) == dict(b.domains).get("nvlink", b.node_id)
        if same and dict(a.domains).get("rack") != dict(b.domains).get("rack"):
            return True
    return False


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 8), min_size=1, max_size=7), st.integers(1, 36), st.integers(1, 3))
def test_a_gang_goes_on_the_fewest_racks_then_nodes_evenly(free: list[int], ranks: int, per_rack: int) -> None:
    cluster, racks = Cluster(), {}
    for i, count in enumerate(free):
        cluster.put_node(NodeSlots(i, f"n{i}", POOL, ("A",) * 8, domains=(("rack", f"r{i // per_rack}"),)))
        cluster.set_free(i, (1 << count) - 1)
        racks.setdefault(i // per_rack, []).append(count)
    placement = place(cluster, Shape(POOL, (Block(ranks, ("A",)),)), Packing.TOPOLOGY)
    if placement is None:
        assert sum(free) < ranks
        return
    used = [p.node // per_rack for p in placement]
    assert len(set(used)) == _fewest([sum(r) for r in racks.values()], ranks)
    assert sum(1 for a, b in pairwise(used) if a != b) == len(set(used)) - 1
    if len(set(used)) == 1:
        assert len(placement) == min(n for r in racks.values() if (n := _fewest(r, ranks)))
    inside = [c for rack in set(used) for c in racks[rack]]
    needed, each = _fewest(inside, ranks), ranks // len(placement)
    assert len(placement) == needed
    if ranks % needed == 0 and sum(c >= each for c in inside) >= needed:
        assert {p.ranks for p in placement} == {each}


def _fewest(rooms: list[int], ranks: int) -> int:
    """How many of these together have so much room, at least; 0: all do not."""
    return next((n for n in range(1, len(rooms) + 1) if any(sum(some) >= ranks for some in combinations(rooms, n))), 0)


@settings(max_examples=examples(100))
@given(nodes(), shapes(), shapes(), PACKINGS)
def test_claimed_devices_are_free_for_nobody_and_come_back(fleet: list[NodeSlots], first: Shape, then: Shape, packing: Packing) -> None:
    cluster, model = built(fleet)
    placement = place(cluster, first, packing)
    if placement is None:
        return
    before = told(cluster.fork())
    cluster.claim(placement)
    model.claimed = set(model.devices(placement))
    assert cluster.all_free(placement)
    other = place(cluster, then, packing)
    assert other is None or not set(model.devices(other)) & model.claimed
    cluster.unclaim(placement)
    assert told(cluster.fork())[:6] == before[:6]


@settings(max_examples=examples(100))
@given(nodes(), shapes(), PACKINGS, st.integers(0, 127), st.integers(0, 127))
def test_masks_of_nodes_hold(fleet: list[NodeSlots], shape: Shape, packing: Packing, avoid: int, only: int) -> None:
    cluster, _ = built(fleet)
    placement = place(cluster, shape, packing, avoid=avoid, only=only)
    for part in placement or ():
        assert only >> part.node & 1 and not avoid >> part.node & 1


@settings(max_examples=examples(80))
@given(nodes(), shapes(), PACKINGS)
def test_refusals_count_every_node_and_agree_with_place(fleet: list[NodeSlots], shape: Shape, packing: Packing) -> None:
    cluster, _ = built(fleet)
    found = refusals(cluster, shape, packing)
    assert sum(n for _, n in found.counts) == len(fleet)
    assert found.fits == (place(cluster, shape, packing) is not None)
    most = most_ranks(cluster, shape, packing)
    if found.fits:
        assert most >= shape.ranks
    assert place(cluster, shape, packing) is None or found.room > 0
