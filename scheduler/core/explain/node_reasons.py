"""Reasons by node for which a waiting job is not placed.

Holds: every node of the pool once, in the order in which they joined.
Never: part of what is published: with thousands of nodes and jobs it is computed on request.
"""

from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.capacity import bits_of
from trainhouse.scheduler.core.cluster.node_filters import FilterResult
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cluster.unschedulable import refusals
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.explain.diagnosis import FILTER_OBSTACLES


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """One node. `free` of its `devices` are free; with ROOM it takes at least one rank."""

    node_id: str
    says: FilterResult
    free: int
    devices: int
    why: str = ""

    @property
    def text(self) -> str:
        """Reason as a phrase that follows the node's name."""
        return f"no isolation ({self.why})" if self.says is FilterResult.ISOLATION else FILTER_OBSTACLES[self.says][1]


def nodes_asked(book: Book, shape: Shape) -> list[NodeAnswer]:
    """Asks every node of a shape's pool; of several roles, for the one that fewest nodes have room for."""
    cluster, found = book.cluster, []
    for result, nodes in refusals(cluster, shape, book.policy(shape.pool).packing).nodes:
        for node in bits_of(nodes):
            slots = cluster.layout.slots[node]
            if slots is not None:
                free = cluster.free_bits[node].bit_count()
                found.append((node, NodeAnswer(slots.node_id, result, free, len(slots.types), slots.not_isolated)))
    return [answer for _, answer in sorted(found, key=lambda pair: pair[0])]
