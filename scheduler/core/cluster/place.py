"""Placement of a gang: chooses the rule by its shape and the packing of its pool.

Holds: an answer is the whole gang, or None; the cluster is not changed.
"""

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.device_sharing import place_share
from trainhouse.scheduler.core.cluster.fragmentation import place_usual
from trainhouse.scheduler.core.cluster.gang_placement import place_block, place_plain
from trainhouse.scheduler.core.cluster.node_slots import NODE, NVLINK
from trainhouse.scheduler.core.cluster.role_placement import place_roles
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement, Shape


def place(
    cluster: Cluster, shape: Shape, packing: Packing, *, ranks: int | None = None, avoid: int = 0, only: int | None = None
) -> Placement | None:
    """Returns the devices for a whole gang, or None. `ranks`: another size than the shape's (elastic). `avoid`, `only`: masks of nodes."""
    plan = cluster.layout.plan(shape)
    wanted = plan.ranks if ranks is None else ranks
    nodes = only
    if avoid:
        nodes = ~avoid if nodes is None else nodes & ~avoid
    by_nodes = packing in (Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE)
    if plan.plain and by_nodes:
        return place_plain(cluster, plan, shape, packing, wanted, nodes)
    if shape.require not in ("", NODE, NVLINK) and plan.topology.level(shape.require) is None:
        return None
    if len(plan.needs) > 1:
        return place_roles(cluster, plan, shape, packing, nodes)
    if not by_nodes and shape.group == 1 and not cluster.layout.cells:
        found = place_usual(cluster, plan, shape, packing, wanted, nodes)
        if found is not None:
            return found
    if shape.milli < WHOLE:
        return place_share(cluster, plan, shape, nodes)
    return place_block(cluster, plan, shape, packing, wanted, nodes)
