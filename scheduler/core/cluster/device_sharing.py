"""Small jobs that share a device: the fullest shared device with room, else a whole device of the fullest node.

Holds: thousandths of a device never exceed 1000 in all; a device with a share on it is free for no gang; claimed devices are not shared.
"""

from trainhouse.scheduler.core.cluster.capacity import bits_of, fitting, lowest_bits, rooms_by
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.gang_placement import fullest
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.shape import Part, Placement, Shape


def place_share(cluster: Cluster, plan: Plan, shape: Shape, nodes: int | None) -> Placement | None:
    """One rank on a share of a device, or None."""
    best: tuple[int, int, int] | None = None
    for need in plan.needs[0]:
        found = _fullest_share(cluster, shape, need, nodes)
        if found is not None and (best is None or found < best):
            best = found
    if best is not None:
        return (Part(best[1], 1 << best[2], shape.milli),)
    for need in plan.needs[0]:
        bay = cluster.bays.get((shape.pool, need.device_type))
        if bay is None or not bay.free:
            continue
        bay.follow(plan.topology)
        node = fullest(bay, rooms_by(cluster, bay, need, nodes), 1)
        if node is not None:
            return (Part(node, lowest_bits(fitting(cluster, node, need), 1), shape.milli),)
    return None


def _fullest_share(cluster: Cluster, shape: Shape, need: Need, nodes: int | None) -> tuple[int, int, int] | None:
    """(thousandths left, node, position) of the fullest shared device with room."""
    bay = cluster.bays.get((shape.pool, need.device_type))
    if bay is None:
        return None
    for left in sorted(m for m in bay.by_left if m >= shape.milli):
        mask = bay.by_left[left]
        mask = mask if need.nodes is None else mask & need.nodes
        for node in bits_of(mask if nodes is None else mask & nodes):
            position = shared_position(cluster, node, need, left)
            if position is not None:
                return left, node, position
    return None


def shared_position(cluster: Cluster, node: int, need: Need, left: int) -> int | None:
    """The lowest device of a node with exactly so much left for one rank of a need, cpus and memory of the node counted."""
    slots = cluster.layout.slots[node]
    if slots is None or not has_host(cluster, node, need, 1):
        return None
    fits = slots.mask_of(need.device_type) & ~cluster.claimed.get(node, 0)
    if need.mixed >> node & 1:
        fits &= slots.with_memory(need.device_memory_bytes)
    return next((p for p, m in sorted(cluster.shares[node].items()) if m == left and fits >> p & 1), None)


def has_host(cluster: Cluster, node: int, need: Need, ranks: int) -> bool:
    """Whether a node that reports cpus and memory has enough of both."""
    slots = cluster.layout.slots[node]
    if slots is None:
        return False
    cpus = not slots.cpus or cluster.cpus_milli[node] >= ranks * need.cpus_milli
    return cpus and (not slots.memory or cluster.memory_free[node] >= ranks * need.memory_bytes)
