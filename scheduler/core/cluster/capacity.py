"""Capacity of nodes for one need, in ranks, and the devices that the ranks get.

Holds: `pick` finds devices for all ranks that a node is counted to take; groups of ranks stay within one NVLink domain of a node.
Never: changes the cluster.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.free_index import Bay
from trainhouse.scheduler.core.cluster.placement_plan import Need


def bits_of(mask: int) -> Iterator[int]:
    """The indexes in a mask, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def rooms_by(cluster: Cluster, bay: Bay, need: Need, nodes: int | None) -> Sequence[int]:
    """`by[c]`: the nodes that take exactly c ranks."""
    if need.nodes is not None:
        nodes = need.nodes if nodes is None else nodes & need.nodes
    by: Sequence[int] = bay.by_free if nodes is None else [m & nodes for m in bay.by_free]
    unit = need.unit
    singly = need.mixed | reporting_hosts(cluster, need)
    if cluster.layout.cells and (unit > 1 or need.one_cell):
        singly |= sum(1 << node for node in cluster.layout.cells)
    if not singly and unit == 1:
        return by
    out = [0] * len(by)
    for count in range(1, len(by)):
        found = by[count] & ~singly
        out[count - count % unit] |= found
        for node in bits_of(by[count] & singly):
            out[node_room(cluster, node, need, unit)] |= 1 << node
    return out


def reporting_hosts(cluster: Cluster, need: Need) -> int:
    """Nodes that report what the need asks of a host: they must be looked at one by one."""
    layout = cluster.layout
    return (layout.reports_cpus if need.cpus_milli else 0) | (layout.reports_memory if need.memory_bytes else 0)


def fullest_singly(cluster: Cluster, bay: Bay, need: Need, ranks: int, nodes: int | None) -> int | None:
    """The node with the fewest free devices that takes all ranks, where nodes must be looked at one by one; at the first, it stops."""
    if need.nodes is not None:
        nodes = need.nodes if nodes is None else nodes & need.nodes
    for count in range(ranks, len(bay.by_free)):
        found = bay.by_free[count] if nodes is None else bay.by_free[count] & nodes
        for touched in (*bay.touched, -1):
            for node in bits_of(found & touched):
                if node_room(cluster, node, need, need.unit) >= ranks:
                    return node
            found &= ~touched
    return None


def node_room(cluster: Cluster, node: int, need: Need, unit: int) -> int:
    """Returns the number of ranks that one node takes, all of its limits counted."""
    bits = fitting(cluster, node, need)
    cells = cluster.layout.cells.get(node)
    if cells is None or (unit == 1 and not need.one_cell):
        count = bits.bit_count()
        count -= count % unit
    else:
        counts = [n - n % unit for n in ((bits & cell).bit_count() for cell in cells)]
        count = max(counts) if need.one_cell or not _apart(cells) else sum(counts)
    slots = cluster.layout.slots[node]
    if slots is None:
        return 0
    if need.cpus_milli and slots.cpus:
        count = min(count, cluster.cpus_milli[node] // need.cpus_milli)
    if need.memory_bytes and slots.memory:
        count = min(count, cluster.memory_free[node] // need.memory_bytes)
    return max(0, count - count % unit)


def fitting(cluster: Cluster, node: int, need: Need) -> int:
    """The free devices of a node that serve a need."""
    slots = cluster.layout.slots[node]
    bits = cluster.free_bits[node]
    for device_type, mask in cluster.layout.type_masks[node]:
        if device_type == need.device_type:
            bits &= mask
            break
    else:
        return 0
    if need.mixed >> node & 1 and slots is not None:
        bits &= slots.with_memory(need.device_memory_bytes)
    return bits


def _apart(cells: Sequence[int]) -> bool:
    """Whether the positions of each cell all come before those of the next: then ranks in order of position keep groups together."""
    return all(a.bit_length() <= (b & -b).bit_length() - 1 for a, b in pairwise(cells))


def pick(cluster: Cluster, node: int, need: Need, ranks: int, bits: int) -> int:
    """Devices among `bits` for so many ranks on a node: together in the tightest NVLink domain, else in few of them, groups whole."""
    cells = cluster.layout.cells.get(node)
    if cells is None:
        return lowest_bits(bits, ranks)
    inside = sorted(((bits & c).bit_count(), i) for i, c in enumerate(cells) if (bits & c).bit_count() >= ranks)
    if inside:
        return lowest_bits(bits & cells[inside[0][1]], ranks)
    order = sorted(cells, key=lambda c: (-(bits & c).bit_count(), c & -c)) if need.unit == 1 else cells
    out, left = 0, ranks
    for cell in order:
        count = (bits & cell).bit_count()
        here = min(left, count - count % need.unit)
        out |= lowest_bits(bits & cell, here)
        left -= here
    return out


def lowest_bits(bits: int, count: int) -> int:
    """The `count` lowest bits."""
    if bits.bit_count() == count:
        return bits
    out = 0
    for _ in range(count):
        low = bits & -bits
        out |= low
        bits ^= low
    return out
