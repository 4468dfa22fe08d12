"""Why a gang is not placed now, in counts; and how large it could be at best.

Holds: each node of the pool is counted once, under the first thing that keeps it from taking a rank, or under ROOM if it takes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from trainhouse.events.policy import Packing
from trainhouse.scheduler.core.cluster.plan import Need
from trainhouse.scheduler.core.cluster.rooms import bits_of, fitting, node_room
from trainhouse.scheduler.core.cluster.shape import WHOLE, Block, Shape
from trainhouse.scheduler.core.cluster.shares import has_host, shared_position
from trainhouse.scheduler.core.cluster.slots import NODE, NVLINK, NodeSlots
from trainhouse.scheduler.core.cluster.topology import Domain

if TYPE_CHECKING:
    from trainhouse.scheduler.core.cluster.cluster import Cluster


class NodeSays(StrEnum):
    """What a node says to one rank of a gang."""

    CLOSED = "CLOSED"
    OTHER_TYPE = "OTHER_TYPE"
    DEVICE_MEMORY = "DEVICE_MEMORY"
    LABEL = "LABEL"
    SPOT = "SPOT"
    FULL = "FULL"
    CLAIMED = "CLAIMED"
    CPUS = "CPUS"
    MEMORY = "MEMORY"
    GROUP = "GROUP"
    ROOM = "ROOM"


@dataclass(frozen=True, slots=True)
class Refusals:
    """Counts of nodes by what they say, most first.

    `room`: ranks that all nodes together would take; `largest`: that the roomiest domain of the required level (`level`; without one the
    roomiest node) would take. `fits`: the gang can be placed now.
    """

    counts: tuple[tuple[NodeSays, int], ...]
    needs: int
    room: int
    level: str
    largest: int
    fits: bool


def refusals(cluster: Cluster, shape: Shape, packing: Packing) -> Refusals:
    """What the nodes of a shape's pool say to it now. Of several roles, to the one that fewest nodes have room for."""
    per_block = [_of_block(cluster, shape, at) for at in range(len(cluster.layout.plan(shape).blocks))]
    counts, rooms = min(per_block, key=lambda found: found[0].get(NodeSays.ROOM, 0))
    by_domain = [sum(r for n, r in rooms.items() if d.nodes >> n & 1) for d in _domains(cluster, shape)]
    return Refusals(
        tuple(sorted(counts.items(), key=lambda c: (-c[1], c[0]))),
        shape.ranks,
        sum(rooms.values()),
        shape.require or NODE,
        max([*by_domain, *(rooms.values() if not by_domain else ())], default=0),
        cluster.place(shape, packing) is not None,
    )


def _domains(cluster: Cluster, shape: Shape) -> tuple[Domain, ...]:
    level = cluster.layout.topology(shape.pool).level(shape.require) if shape.require else None
    return level.domains if level is not None else ()


def _of_block(cluster: Cluster, shape: Shape, at: int) -> tuple[dict[NodeSays, int], dict[int, int]]:
    plan = cluster.layout.plan(shape)
    counts: dict[NodeSays, int] = {}
    rooms: dict[int, int] = {}
    for node in bits_of(cluster.node_mask(shape.pool)):
        says, room = _says(cluster, node, shape, plan.blocks[at], plan.needs[at])
        counts[says] = counts.get(says, 0) + 1
        if room:
            rooms[node] = room
    return counts, rooms


def _says(cluster: Cluster, node: int, shape: Shape, block: Block, needs: tuple[Need, ...]) -> tuple[NodeSays, int]:
    slots = cluster.layout.slots[node]
    if slots is None or not slots.open:
        return NodeSays.CLOSED, 0
    kind = _kind(slots, shape, block, needs)
    if kind is not None:
        return kind, 0
    here = [need for need in needs if need.device_type in slots.types]
    room = max(_room(cluster, node, shape, need) for need in here)
    return (NodeSays.ROOM, room) if room else (_why_none(cluster, node, shape, here), 0)


def _kind(slots: NodeSlots, shape: Shape, block: Block, needs: tuple[Need, ...]) -> NodeSays | None:
    """What never changes about a node."""
    wanted = [need.device_type for need in needs if need.device_type in slots.types]
    if not wanted:
        return NodeSays.OTHER_TYPE
    if block.device_memory_bytes and not any(slots.with_memory(block.device_memory_bytes) & slots.mask_of(t) for t in wanted):
        return NodeSays.DEVICE_MEMORY
    if not set(shape.labels) <= set(slots.labels):
        return NodeSays.LABEL
    return NodeSays.SPOT if slots.spot and not shape.spot else None


def _room(cluster: Cluster, node: int, shape: Shape, need: Need) -> int:
    if shape.milli >= WHOLE:
        level = cluster.layout.topology(shape.pool).level(NVLINK)
        joined = level is not None and level.wide and level.nodes >> node & 1
        return node_room(cluster, node, need, 1 if joined else need.unit)
    if not has_host(cluster, node, need, 1):
        return 0
    lefts = sorted(m for m in cluster.shares.get(node, {}).values() if m >= shape.milli)
    return int(bool(fitting(cluster, node, need)) or any(shared_position(cluster, node, need, m) is not None for m in lefts))


def _why_none(cluster: Cluster, node: int, shape: Shape, needs: list[Need]) -> NodeSays:
    slots = cluster.layout.slots[node]
    if not any(fitting(cluster, node, need) for need in needs):
        claimed = cluster.claimed.get(node, 0) & cluster.idle[node]
        return NodeSays.CLAIMED if claimed else NodeSays.FULL
    need = needs[0]
    if slots is not None and slots.cpus and cluster.cpus_milli[node] < need.cpus_milli:
        return NodeSays.CPUS
    if slots is not None and slots.memory and cluster.memory_free[node] < need.memory_bytes:
        return NodeSays.MEMORY
    return NodeSays.GROUP


def most_ranks(cluster: Cluster, shape: Shape, packing: Packing) -> int:
    """The most ranks of a gang like this on nodes that all are open and idle. At least `shape.ranks` exactly if the gang fits there."""
    key = (shape, packing)
    known = cluster.layout.most.get(key)
    if known is None:
        known = cluster.layout.most[key] = _most_ranks(cluster, cluster.all_idle(), shape, packing)
    return known


def _most_ranks(cluster: Cluster, idle: Cluster, shape: Shape, packing: Packing) -> int:
    plan = idle.layout.plan(shape)
    best = 0
    for needs in plan.needs:
        by_type = []
        for need in needs:
            bay = idle.bays.get((shape.pool, need.device_type))
            rooms = {
                n: r for n in bits_of(cluster.node_mask(shape.pool)) if (r := _room(idle, n, shape, need) if _may(idle, n, need) else 0)
            }
            by_type.append(_largest(idle, shape, rooms) if bay is not None else 0)
        best += max(by_type, default=0)
    if idle.place(shape, packing) is not None:
        return max(best, shape.ranks)
    return min(best, shape.ranks - 1)


def _may(cluster: Cluster, node: int, need: Need) -> bool:
    slots = cluster.layout.slots[node]
    return slots is not None and need.device_type in slots.types and (need.nodes is None or bool(need.nodes >> node & 1))


def _largest(cluster: Cluster, shape: Shape, rooms: dict[int, int]) -> int:
    """Of the required level's domains and of single nodes, the roomiest; without such a level, all nodes together."""
    if not shape.require:
        return sum(rooms.values())
    domains = [sum(r for n, r in rooms.items() if d.nodes >> n & 1) for d in _domains(cluster, shape)]
    return max([*domains, *rooms.values()], default=0)
