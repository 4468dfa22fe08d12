"""Placement of a gang that ran before: back to its nodes, which have its warm processes and its files at hand, or near them.

First on those nodes alone; else on what is free of them, the rest on others, if that takes no more nodes than a new place would; then
anywhere but where its last failure is blamed on.

Holds: an answer is a placement that the policy's rule could have given for each of its parts; a gang that asks for more than devices (a
level, roles, a share) is not split. No answer: the gang is placed as any other.
Never: changes the cluster.
"""

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.free_index import count_in
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Placement, Shape
from trainhouse.scheduler.core.queue.entries import Waiting


def place_near(cluster: Cluster, job: Waiting, shape: Shape, packing: Packing, ranks: int, avoid: int) -> Placement | None:
    """Devices for so many ranks of a gang, by what it prefers and shuns; never on nodes of `avoid` (bit mask)."""
    home = job.prefer & ~avoid & ~job.shun
    if home:
        placement = place(cluster, shape, packing, ranks=ranks, only=home)
        if placement is not None:
            return placement
    elsewhere = place(cluster, shape, packing, ranks=ranks, avoid=avoid | job.shun)
    split = _split(cluster, shape, packing, ranks, home, avoid | job.shun) if home else None
    if split is not None and (elsewhere is None or len(split) <= len(elsewhere)):
        return split
    return elsewhere


def _split(cluster: Cluster, shape: Shape, packing: Packing, ranks: int, home: int, avoid: int) -> Placement | None:
    """Places the ranks that fit at home, and the rest on other nodes."""
    plan = cluster.layout.plan(shape)
    if packing is not Packing.TOPOLOGY or not plan.plain:
        return None
    bay = cluster.bays.get((shape.pool, plan.needs[0][0].device_type))
    stays = min(ranks - 1, count_in(bay.by_free, home)) if bay is not None else 0
    if stays < 1:
        return None
    here = place(cluster, shape, packing, ranks=stays, only=home)
    there = place(cluster, shape, packing, ranks=ranks - stays, avoid=avoid | home)
    return None if here is None or there is None else (*here, *there)
