"""From a shape to a placement: which rule counts, on which nodes, and which devices of them.

Holds: an answer is the whole gang on free devices, or None; the cluster is not changed. A level that the shape requires holds under
every packing.
"""

from collections.abc import Sequence
from dataclasses import replace

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster import node_selection
from trainhouse.scheduler.core.cluster.capacity import fitting, fullest_singly, lowest_bits, pick, rooms_by
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.free_index import Bay, count_in
from trainhouse.scheduler.core.cluster.multi_domain import over_nodes
from trainhouse.scheduler.core.cluster.node_selection import Chosen
from trainhouse.scheduler.core.cluster.node_slots import NODE, NVLINK
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.shape import Part, Placement, Shape


def place_plain(cluster: Cluster, plan: Plan, shape: Shape, packing: Packing, ranks: int, nodes: int | None) -> Placement | None:
    """A gang of equal ranks of one type that asks for nothing else: the common case, without a look at any node."""
    need = plan.needs[0][0]
    bay = cluster.bays.get((shape.pool, need.device_type))
    if bay is None or bay.free < ranks:
        return None
    by: Sequence[int] = bay.by_free if nodes is None else [m & nodes for m in bay.by_free]
    if packing is Packing.STRICT_CONSOLIDATE:
        chosen = node_selection.consolidated(by, by[-1], len(by) - 1, ranks)
    else:
        chosen = _near(bay, plan, by, ranks, nodes)
    if chosen is None:
        return None
    parts = []
    for node, count in chosen:
        masks = cluster.layout.type_masks[node]
        bits = cluster.free_bits[node]
        if len(masks) > 1:
            bits = fitting(cluster, node, need)
        parts.append(Part(node, pick(cluster, node, need, count, bits) if cluster.layout.cells else lowest_bits(bits, count)))
    return tuple(parts)


def _near(bay: Bay, plan: Plan, by: Sequence[int], ranks: int, nodes: int | None) -> Chosen | None:
    bay.follow(plan.topology)
    single = fullest(bay, by, ranks)
    if single is not None:
        return [(single, ranks)]
    return node_selection.in_domains(by, plan.topology, ranks, rooms_of(bay, plan, by, ranks, nodes))


def fullest(bay: Bay, by: Sequence[int], ranks: int) -> int | None:
    """The fullest node with room, in domains that are in use already if there is one."""
    found = node_selection.tightest(by, ranks)
    if found is None:
        return None
    mask = found[1]
    for at in range(len(bay.touched) - 1, -1, -1):
        mask = mask & bay.touched[at] or mask
    return node_selection.lowest(mask)


def rooms_of(bay: Bay, plan: Plan, by: Sequence[int], ranks: int, nodes: int | None) -> Sequence[int]:
    """Room by domain; exact where it can matter for so many ranks, and an upper bound below that."""
    if by is bay.by_free:
        return bay.room
    masks = plan.topology.masks
    if nodes is None:
        return [r if r < ranks else count_in(by, m) for r, m in zip(bay.room, masks, strict=True)]
    out = ~nodes
    return [r if r < ranks or not m & out else count_in(by, m) for r, m in zip(bay.room, masks, strict=True)]


def choose_for(cluster: Cluster, plan: Plan, shape: Shape, need: Need, packing: Packing, ranks: int, nodes: int | None) -> Chosen | None:
    """Nodes for ranks of one need, all limits counted."""
    bay = cluster.bays.get((shape.pool, need.device_type))
    if bay is None or bay.free < ranks:
        return None
    bay.follow(plan.topology)
    if shape.prefer == NVLINK and packing is not Packing.STRICT_CONSOLIDATE and not need.one_cell and cluster.layout.cells:
        inside = fullest(bay, rooms_by(cluster, bay, replace(need, one_cell=True), nodes), ranks)
        if inside is not None:
            return [(inside, ranks)]
    if need.costly and packing is not Packing.STRICT_CONSOLIDATE:
        alone = fullest_singly(cluster, bay, need, ranks, nodes)
        if alone is not None:
            return [(alone, ranks)]
    by = rooms_by(cluster, bay, need, nodes)
    if packing is Packing.STRICT_CONSOLIDATE and not shape.require:
        return node_selection.consolidated(by, by[-1], len(by) - 1, ranks)
    single = fullest(bay, by, ranks)
    if single is not None:
        return [(single, ranks)]
    if shape.require == NODE:
        return None
    if need.one_cell:
        by = rooms_by(cluster, bay, replace(need, unit=1, one_cell=False), nodes)
    rooms = rooms_of(bay, plan, by, ranks, None)
    unit = 1 if need.one_cell else need.unit
    chosen = node_selection.in_domains(by, plan.topology, ranks, rooms, unit=unit, least=shape.prefer, most=shape.require)
    if chosen is None and unit > 1:
        return over_nodes(cluster, bay, plan, need, ranks, nodes, shape.require)
    return chosen


def with_devices(cluster: Cluster, need: Need, chosen: Chosen) -> Placement:
    """Free devices on each of the chosen nodes."""
    return tuple(Part(node, pick(cluster, node, need, ranks, fitting(cluster, node, need))) for node, ranks in chosen)


def place_block(cluster: Cluster, plan: Plan, shape: Shape, packing: Packing, ranks: int, nodes: int | None) -> Placement | None:
    """A gang of equal ranks, on the first type (in order of preference) that can take it."""
    for need in plan.needs[0]:
        chosen = choose_for(cluster, plan, shape, need, packing, ranks, nodes)
        if chosen is not None:
            return with_devices(cluster, need, chosen)
    return None
