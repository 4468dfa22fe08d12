"""Gangs whose groups of ranks are larger than a node's part of an NVLink domain: domains of several nodes take them.

Holds: each run of `unit` ranks, from rank 0 on, lies in one NVLink domain.
"""

from collections.abc import Sequence
from dataclasses import replace

from trainhouse.scheduler.core.cluster.capacity import bits_of, rooms_by
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.free_index import Bay, count_in
from trainhouse.scheduler.core.cluster.node_selection import Chosen, in_order, spread
from trainhouse.scheduler.core.cluster.node_slots import NVLINK
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.topology import Topology

Home = tuple[int, int, int]
"""Ranks that an NVLink domain takes (whole groups), its first node, its nodes."""


def over_nodes(cluster: Cluster, bay: Bay, plan: Plan, need: Need, ranks: int, nodes: int | None, require: str) -> Chosen | None:
    """Nodes for a gang of groups, in the fewest NVLink domains, within one domain of the required level."""
    level = plan.topology.level(NVLINK)
    if level is None or not level.wide:
        return None
    by = rooms_by(cluster, bay, replace(need, unit=1), nodes)
    for scope in _scopes(by, plan.topology, require, ranks):
        homes = _homes(by, plan.topology, scope, need.unit, cluster.layout.cells)
        taken = _fill(homes, ranks, need.unit)
        if taken is not None:
            return _spread_all(by, plan.topology, taken, need.unit)
    return None


def _scopes(by: Sequence[int], topology: Topology, require: str, ranks: int) -> list[int]:
    if not require:
        return [-1]
    level = topology.level(require)
    if level is None:
        return []
    rooms = sorted((count_in(by, d.nodes), d.first, d.nodes) for d in level.domains)
    return [nodes for room, _, nodes in rooms if room >= ranks]


def _homes(by: Sequence[int], topology: Topology, scope: int, unit: int, cells: dict[int, tuple[int, ...]]) -> list[Home]:
    """NVLink domains and what they take: those that nodes report, and each other undivided node by itself."""
    level = topology.level(NVLINK)
    domains = [(d.nodes & scope, d.first) for d in level.domains] if level is not None else []
    reported = level.nodes if level is not None else 0
    for count in range(unit, len(by)):
        domains += [(1 << node, node) for node in bits_of(by[count] & scope & ~reported) if node not in cells]
    homes = []
    for mask, first in domains:
        room = count_in(by, mask)
        if room >= unit:
            homes.append((room - room % unit, first, mask))
    return homes


def _fill(homes: list[Home], ranks: int, unit: int) -> list[tuple[Home, int]] | None:
    """Ranks by domain: the tightest one that takes all, else the roomiest ones and the tightest for what is left."""
    out: list[tuple[Home, int]] = []
    left, rest = ranks, sorted(homes, key=lambda h: (-h[0], h[1]))
    while left > 0:
        if not rest:
            return None
        if rest[0][0] < left:
            home = rest.pop(0)
        else:
            home = min((h for h in rest if h[0] >= left), key=lambda h: (h[0], h[1]))
            rest.remove(home)
        here = min(left, home[0])
        out.append((home, here))
        left -= here
    return out


def _spread_all(by: Sequence[int], topology: Topology, taken: list[tuple[Home, int]], unit: int) -> Chosen:
    """Domains one after the other, near ones next to each other; within one its ranks on the fewest nodes."""
    order = sorted(taken, key=lambda t: (t[1] % unit, topology.position[t[0][1]]))
    return [part for home, here in order for part in in_order(topology, spread(by, home[2], here) or [])]
