"""Reasons for which a gang is not placed now, by node; and the largest size that would fit.

Holds: each node of the pool is counted once, under the first thing that keeps it from taking a rank, or under ROOM if it takes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.capacity import bits_of, fitting, rooms_by
from trainhouse.scheduler.core.cluster.device_sharing import has_host, shared_position
from trainhouse.scheduler.core.cluster.free_index import count_in
from trainhouse.scheduler.core.cluster.node_filters import FilterResult, kinds_of
from trainhouse.scheduler.core.cluster.node_slots import NODE, NVLINK
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.placement_plan import Need
from trainhouse.scheduler.core.cluster.shape import WHOLE, Shape
from trainhouse.scheduler.core.cluster.topology import Level

__all__ = ("FilterResult", "Refusals", "most_ranks", "refusals")

from trainhouse.scheduler.core.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Refusals:
    """`nodes`: masks of nodes by reason, that of most nodes first; each node is in one of them.

    `room`: ranks that all nodes together would take; `largest`: that the roomiest domain of the required level (`level`; "node":
    the roomiest node) would take. `fits`: the gang can be placed now.
    """

    nodes: tuple[tuple[FilterResult, int], ...]
    needs: int
    room: int
    level: str
    largest: int
    fits: bool

    @property
    def counts(self) -> tuple[tuple[FilterResult, int], ...]:
        """Number of nodes for each reason, most first."""
        return tuple((result, nodes.bit_count()) for result, nodes in self.nodes)


def refusals(cluster: Cluster, shape: Shape, packing: Packing) -> Refusals:
    """Returns the refusals by the nodes of a shape's pool now. Of several roles, for the one that fewest nodes have room for."""
    found = [_of_block(cluster, shape, at) for at in range(len(cluster.layout.plan(shape).blocks))]
    masks, best = min(found, key=lambda f: f[0].get(FilterResult.ROOM, 0).bit_count())
    return Refusals(
        tuple(sorted(((s, n) for s, n in masks.items() if n), key=lambda pair: (-pair[1].bit_count(), pair[0]))),
        shape.ranks,
        count_in(best, -1),
        shape.require or NODE,
        _roomiest(best, _required(cluster, shape)),
        place(cluster, shape, packing) is not None,
    )


def _required(cluster: Cluster, shape: Shape) -> Level | None:
    return cluster.layout.topology(shape.pool).level(shape.require) if shape.require else None


def _roomiest(by: Sequence[int], level: Level | None) -> int:
    """The most ranks that one domain of a level, or one node, takes."""
    node = next((count for count in range(len(by) - 1, 0, -1) if by[count]), 0)
    return max([node, *(count_in(by, d.nodes) for d in level.domains)] if level is not None else [node])


def _of_block(cluster: Cluster, shape: Shape, at: int) -> tuple[dict[FilterResult, int], Sequence[int]]:
    """Masks of nodes by reason, and the rooms for the type that has most."""
    layout = cluster.layout
    plan = layout.plan(shape)
    kinds = layout.kinds.get(shape)
    if kinds is None:
        kinds = layout.kinds[shape] = kinds_of(shape, plan, layout.of_pool(shape.pool))
    masks = dict(kinds[at])
    rest = cluster.node_mask(shape.pool)
    for nodes in masks.values():
        rest &= ~nodes
    by_type = [rooms_for(cluster, shape, need) for need in plan.needs[at]]
    room = 0
    for by in by_type:
        for count in range(1, len(by)):
            room |= by[count]
    masks[FilterResult.ROOM] = room & rest
    _sort_out(cluster, shape.pool, plan.needs[at], rest & ~room, masks)
    return masks, max(by_type, key=lambda by: count_in(by, -1), default=())


def _sort_out(cluster: Cluster, pool: str, needs: tuple[Need, ...], nodes: int, masks: dict[FilterResult, int]) -> None:
    """Adds open nodes of the right kind that have no room now."""
    free = 0
    for need in needs:
        bay = cluster.bays.get((pool, need.device_type))
        for mask in bay.by_free[1:] if bay is not None else ():
            free |= mask
    claimed = sum(1 << node for node, bits in cluster.kept.items() if bits & cluster.idle[node])
    masks[FilterResult.CLAIMED] = nodes & ~free & claimed
    masks[FilterResult.FULL] = nodes & ~free & ~claimed
    for node in bits_of(nodes & free):
        result = _why_none(cluster, node, needs)
        masks[result] = masks.get(result, 0) | 1 << node


def rooms_for(cluster: Cluster, shape: Shape, need: Need) -> Sequence[int]:
    """`by[c]`: nodes that take c ranks of a need; of a share, one rank at most."""
    bay = cluster.bays.get((shape.pool, need.device_type))
    if bay is None:
        return ()
    if shape.milli >= WHOLE:
        level = cluster.layout.topology(shape.pool).level(NVLINK) if need.unit > 1 else None
        return rooms_by(cluster, bay, need if level is None or not level.wide else replace(need, unit=1), None)
    by = rooms_by(cluster, bay, need, None)
    whole = 0
    for count in range(1, len(by)):
        whole |= by[count]
    for left in sorted(m for m in bay.by_left if m >= shape.milli):
        shared = bay.by_left[left] & ~whole
        for node in bits_of(shared if need.nodes is None else shared & need.nodes):
            whole |= (1 << node) if shared_position(cluster, node, need, left) is not None else 0
    return (0, whole)


def _why_none(cluster: Cluster, node: int, needs: tuple[Need, ...]) -> FilterResult:
    need = next((n for n in needs if fitting(cluster, node, n)), None)
    if need is None:
        return FilterResult.FULL
    if not has_host(cluster, node, replace(need, memory_bytes=0), 1):
        return FilterResult.CPUS
    return FilterResult.GROUP if has_host(cluster, node, need, 1) else FilterResult.MEMORY


def most_ranks(cluster: Cluster, shape: Shape, packing: Packing) -> int:
    """The most ranks of a gang like this on nodes that all are open and idle. At least `shape.ranks` exactly if the gang fits there."""
    key = (shape, packing)
    known = cluster.layout.most.get(key)
    if known is None:
        known = cluster.layout.most[key] = _most_ranks(cluster.all_idle(), shape, packing)
    return known


def _most_ranks(idle: Cluster, shape: Shape, packing: Packing) -> int:
    level, best = _required(idle, shape), 0
    for needs in idle.layout.plan(shape).needs:
        rooms = [rooms_for(idle, shape, need) for need in needs]
        best += max((_roomiest(by, level) if shape.require else count_in(by, -1) for by in rooms), default=0)
    if place(idle, shape, packing) is not None:
        return max(best, shape.ranks)
    return min(best, shape.ranks - 1)
