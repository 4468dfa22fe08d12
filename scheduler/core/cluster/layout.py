"""What the fleet is made of, apart from what is free: nodes, pools, topology, and which nodes a shape may use at all.

Holds: the same nodes give the same layout, whatever the order in which they were put. Clusters that were forked share one layout; it is
copied before the first change of either. What is derived (topology, masks per need) is made when first asked for, and forgotten on change.
"""

from dataclasses import dataclass, field, replace

from trainhouse.scheduler.core.cluster.shape import Block, Shape
from trainhouse.scheduler.core.cluster.slots import NodeSlots
from trainhouse.scheduler.core.cluster.topology import Topology

MAX_PLANS = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What placing a shape needs to know of the layout: its blocks (equal neighbours joined), the types each may use, and on which nodes.

    `nodes` None: on all of the pool. `plain`: one block of one type, all nodes, nothing else asked. `costly`: cpus or memory are asked for.
    """

    blocks: tuple[Block, ...]
    types: tuple[tuple[str, ...], ...]
    nodes: int | None
    plain: bool
    costly: bool
    topology: Topology


@dataclass(slots=True)
class Layout:
    """All nodes by index, and what follows from them."""

    slots: list[NodeSlots | None] = field(default_factory=list)
    pools: dict[str, int] = field(default_factory=dict)
    type_masks: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    _topologies: dict[str, Topology] = field(default_factory=dict)
    _types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _plans: dict[Shape, Plan] = field(default_factory=dict)

    def copy(self) -> "Layout":
        """Its own lists; what is derived stays valid."""
        return Layout(
            list(self.slots), dict(self.pools), list(self.type_masks), dict(self._topologies), dict(self._types), dict(self._plans)
        )

    def put(self, slots: NodeSlots) -> None:
        """Adds a node, or replaces it."""
        while len(self.slots) <= slots.index:
            self.slots.append(None)
            self.type_masks.append(())
        old = self.slots[slots.index]
        self.slots[slots.index] = slots
        self.type_masks[slots.index] = tuple((t, slots.mask_of(t)) for t in sorted(set(slots.types)))
        self._plans.clear()
        if old is not None and old.pool != slots.pool:
            self.pools[old.pool] &= ~(1 << slots.index)
            self._forget(old.pool)
        self.pools[slots.pool] = self.pools.get(slots.pool, 0) | 1 << slots.index
        if old is None or (old.pool, old.domains, old.types) != (slots.pool, slots.domains, slots.types):
            self._forget(slots.pool)

    def _forget(self, pool: str) -> None:
        self._topologies.pop(pool, None)
        self._types.pop(pool, None)

    def of_pool(self, pool: str) -> list[NodeSlots]:
        """The pool's nodes by index."""
        mask = self.pools.get(pool, 0)
        return [s for i, s in enumerate(self.slots) if s is not None and mask >> i & 1]

    def topology(self, pool: str) -> Topology:
        """The pool's domains."""
        found = self._topologies.get(pool)
        if found is None:
            found = self._topologies[pool] = Topology(self.of_pool(pool))
        return found

    def types(self, pool: str) -> tuple[str, ...]:
        """Device types of the pool, sorted."""
        found = self._types.get(pool)
        if found is None:
            found = self._types[pool] = tuple(sorted({t for s in self.of_pool(pool) for t in s.types}))
        return found

    def plan(self, shape: Shape) -> Plan:
        """The plan for a shape; kept, at most `MAX_PLANS` of them."""
        found = self._plans.get(shape)
        if found is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            found = self._plans[shape] = self._make_plan(shape)
        return found

    def _make_plan(self, shape: Shape) -> Plan:
        blocks = joined(shape.blocks)
        known = self.types(shape.pool)
        types = tuple(tuple(t for t in (b.types or known) if t in known) for b in blocks)
        nodes: int | None = None
        if shape.labels or not shape.spot:
            nodes = self._matching(shape)
        costly = any(b.cpus or b.memory_bytes for b in blocks)
        memory = any(b.device_memory_bytes for b in blocks)
        simple = len(blocks) == 1 and len(types[0]) == 1 and nodes is None and not costly and not memory
        plain = simple and shape.milli == 1000 and not shape.require and shape.group == 1
        return Plan(blocks, types, nodes, plain, costly, self.topology(shape.pool))

    def _matching(self, shape: Shape) -> int:
        """Nodes that have all the labels, and are not spot where the shape does not want that."""
        mask, wanted = 0, set(shape.labels)
        for slots in self.of_pool(shape.pool):
            if wanted <= set(slots.labels) and (shape.spot or not slots.spot):
                mask |= 1 << slots.index
        return mask


def joined(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Neighbouring blocks with equal needs as one block: what they are called does not matter to a device."""
    out: list[Block] = []
    for block in blocks:
        if out and replace(out[-1], ranks=0, role="") == replace(block, ranks=0, role=""):
            out[-1] = replace(out[-1], ranks=out[-1].ranks + block.ranks, role="")
        else:
            out.append(block)
    return tuple(out)
