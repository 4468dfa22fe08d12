"""From a shape to a placement: which rule counts, on which nodes, and which devices of them.

Holds: an answer is the whole gang on free devices, or None; the cluster is not changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainhouse.events.policy import Packing
from trainhouse.scheduler.core.cluster import choose
from trainhouse.scheduler.core.cluster.bay import Bay, count_in
from trainhouse.scheduler.core.cluster.choose import Chosen
from trainhouse.scheduler.core.cluster.layout import Plan
from trainhouse.scheduler.core.cluster.shape import Part, Placement, Shape

if TYPE_CHECKING:
    from trainhouse.scheduler.core.cluster.cluster import Cluster


def place(cluster: Cluster, shape: Shape, packing: Packing, ranks: int | None, avoid: int, only: int | None) -> Placement | None:
    """The whole gang or None."""
    plan = cluster.layout.plan(shape)
    wanted = shape.ranks if ranks is None else ranks
    for device_type in plan.types[0]:
        bay = cluster.bays.get((shape.pool, device_type))
        if bay is None or bay.free < wanted:
            continue
        chosen = _one_block(bay, plan, packing, wanted, _allowed(plan, avoid, only))
        if chosen is not None:
            return _with_devices(cluster, device_type, chosen)
    return None


def _allowed(plan: Plan, avoid: int, only: int | None) -> int | None:
    """The nodes that may be used; None: all."""
    nodes = plan.nodes
    if only is not None:
        nodes = only if nodes is None else nodes & only
    if avoid:
        nodes = ~avoid if nodes is None else nodes & ~avoid
    return nodes


def _one_block(bay: Bay, plan: Plan, packing: Packing, ranks: int, nodes: int | None) -> Chosen | None:
    by = bay.by_free if nodes is None else [m & nodes for m in bay.by_free]
    if packing is Packing.STRICT_CONSOLIDATE:
        per_node = len(by) - 1
        return choose.consolidated(by, by[per_node], per_node, ranks)
    bay.follow(plan.topology)
    found = choose.tightest(by, ranks)
    if found is not None:
        mask = found[1]
        for at in range(len(bay.touched) - 1, -1, -1):
            mask = mask & bay.touched[at] or mask
        return [(choose.lowest(mask), ranks)]
    rooms = bay.room if nodes is None else [count_in(by, m) for m in plan.topology.masks]
    return choose.in_domains(by, plan.topology, ranks, rooms)


def _with_devices(cluster: Cluster, device_type: str, chosen: Chosen) -> Placement:
    """The lowest free devices of the type on each node."""
    parts = []
    for node, ranks in chosen:
        mask = next(m for t, m in cluster.layout.type_masks[node] if t == device_type)
        parts.append(Part(node, lowest_bits(cluster.free_bits[node] & mask, ranks)))
    return tuple(parts)


def lowest_bits(bits: int, count: int) -> int:
    """The `count` lowest bits."""
    more = bits.bit_count() - count
    if not more:
        return bits
    out = 0
    for _ in range(count):
        low = bits & -bits
        out |= low
        bits ^= low
    return out
