"""Free devices of one type in one pool, counted so that a gang is placed without looking at nodes one by one.

Holds: `by_free[c]` is the mask of open nodes with exactly c free devices of the type, so each open node is in one of them; `of_size[c]`
those that have c in all; `by_left[m]` those that have a shared device with m thousandths left. Under a topology, `room[d]` counts the free
devices of domain d and `size[d]` all that its open nodes have; `touched[level]` has the nodes of those domains in which something is taken.
A copy shares nothing that changes.
Never: knows which device of a node is free.
"""

from collections.abc import Sequence

from trainhouse.scheduler.core.cluster.topology import Topology


class Bay:
    """The free devices of a (pool, type)."""

    __slots__ = ("by_free", "by_left", "free", "of_size", "room", "size", "topology", "touched")

    def __init__(self) -> None:
        self.by_free: list[int] = [0]
        self.by_left: dict[int, int] = {}
        self.of_size: list[int] = [0]
        self.free = 0
        self.topology: Topology | None = None
        self.room: list[int] = []
        self.size: list[int] = []
        self.touched: list[int] = []

    def copy(self) -> "Bay":
        """Equal now, apart from then on."""
        new = Bay.__new__(Bay)
        new.by_free, new.room, new.size, new.touched = self.by_free.copy(), self.room.copy(), self.size.copy(), self.touched.copy()
        new.by_left = self.by_left.copy()
        new.of_size, new.free, new.topology = self.of_size.copy(), self.free, self.topology
        return new

    def enter(self, node: int, capacity: int, free: int) -> None:
        """An open node, with so many devices of the type in all."""
        while len(self.by_free) <= capacity:
            self.by_free.append(0)
            self.of_size.append(0)
        self.of_size[capacity] |= 1 << node
        self.by_free[free] |= 1 << node
        self.free += free
        self._count(node, capacity, free)

    def leave(self, node: int, capacity: int, free: int) -> None:
        """A node that closes."""
        self.of_size[capacity] &= ~(1 << node)
        self.by_free[free] &= ~(1 << node)
        self.free -= free
        self._count(node, -capacity, -free)

    def move(self, node: int, before: int, after: int) -> None:
        """The number of a node's free devices changed."""
        bit = 1 << node
        by = self.by_free
        by[before] ^= bit
        by[after] ^= bit
        more = after - before
        self.free += more
        topology = self.topology
        if topology is None:
            return
        room, size = self.room, self.size
        for d in topology.numbers_of.get(node, ()):
            old = room[d]
            now = room[d] = old + more
            if old == size[d]:
                self.touched[topology.level_at[d]] |= topology.masks[d]
            elif now == size[d]:
                self.touched[topology.level_at[d]] &= ~topology.masks[d]

    @property
    def nodes(self) -> int:
        """All open nodes of it."""
        mask = 0
        for nodes in self.of_size:
            mask |= nodes
        return mask

    def share(self, node: int, milli: int, there: bool) -> None:
        """A node has, or has no longer, a shared device with so much left."""
        nodes = self.by_left.get(milli, 0) & ~(1 << node) | (1 << node if there else 0)
        if nodes:
            self.by_left[milli] = nodes
        else:
            self.by_left.pop(milli, None)

    def _count(self, node: int, capacity: int, free: int) -> None:
        topology = self.topology
        if topology is None:
            return
        for d in topology.numbers_of.get(node, ()):
            self.room[d] += free
            self.size[d] += capacity
            self._touch(topology, d)

    def _touch(self, topology: Topology, d: int) -> None:
        at, nodes = topology.level_at[d], topology.masks[d]
        self.touched[at] = self.touched[at] & ~nodes if self.room[d] == self.size[d] else self.touched[at] | nodes

    def follow(self, topology: Topology) -> None:
        """Counts anew by the domains of a topology; nothing, if it counts by them already."""
        if self.topology is topology:
            return
        self.topology = topology
        self.room, self.size = [0] * len(topology.masks), [0] * len(topology.masks)
        self.touched = [0] * len(topology.wide)
        for d, nodes in enumerate(topology.masks):
            self.room[d], self.size[d] = count_in(self.by_free, nodes), count_in(self.of_size, nodes)
            self._touch(topology, d)


def count_in(by: Sequence[int], nodes: int) -> int:
    """The sum over these nodes of the numbers under which `by` has them."""
    total = 0
    for count in range(1, len(by)):
        found = by[count] & nodes
        if found:
            total += count * found.bit_count()
    return total
