"""Composition of the fleet, apart from what is free: nodes, pools, topology, and the nodes that are eligible for a shape.

Holds: the same nodes give the same layout, whatever the order in which they were put. Clusters that were forked share one layout; it is
copied before the first change of either. What is derived (topology, masks per need) is made when first asked for, and forgotten on change.
"""

from dataclasses import dataclass, field

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.node_filters import FilterResult
from trainhouse.scheduler.core.cluster.node_slots import NODE, NVLINK, NodeSlots
from trainhouse.scheduler.core.cluster.placement_plan import Plan, make_plan
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cluster.topology import Topology

MAX_PLANS = 20_000


@dataclass(slots=True)
class Layout:
    """All nodes by index, and what follows from them."""

    slots: list[NodeSlots | None] = field(default_factory=list)
    pools: dict[str, int] = field(default_factory=dict)
    type_masks: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    cells: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Nodes of several NVLink domains: the masks of their devices, by lowest position."""
    reports_cpus: int = 0
    reports_memory: int = 0
    """Nodes that report their number of cpus and amount of memory."""
    most: dict[tuple[Shape, Packing], int] = field(default_factory=dict)
    """Largest gangs, as they were asked for; forgotten on change."""
    kinds: dict[Shape, tuple[dict[FilterResult, int], ...]] = field(default_factory=dict)
    """What nodes say to each block of a shape, whatever is free; forgotten on change."""
    _topologies: dict[str, Topology] = field(default_factory=dict)
    _types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _plans: dict[Shape, Plan] = field(default_factory=dict)
    _totals: dict[tuple[str, str | None], int] = field(default_factory=dict)
    _levels: dict[str, frozenset[str]] = field(default_factory=dict)

    def copy(self) -> "Layout":
        """Its own lists; what is derived stays valid."""
        return Layout(
            list(self.slots),
            dict(self.pools),
            list(self.type_masks),
            dict(self.cells),
            self.reports_cpus,
            self.reports_memory,
            dict(self.most),
            dict(self.kinds),
            dict(self._topologies),
            dict(self._types),
            dict(self._plans),
        )

    def put(self, slots: NodeSlots) -> None:
        """Adds a node, or replaces it."""
        while len(self.slots) <= slots.index:
            self.slots.append(None)
            self.type_masks.append(())
        old = self.slots[slots.index]
        self.slots[slots.index] = slots
        self.type_masks[slots.index] = tuple((t, slots.mask_of(t)) for t in sorted(set(slots.types)))
        bit = 1 << slots.index
        self.reports_cpus = self.reports_cpus | bit if slots.cpus else self.reports_cpus & ~bit
        self.reports_memory = self.reports_memory | bit if slots.memory else self.reports_memory & ~bit
        cells = slots.cells()
        if len(cells) > 1:
            self.cells[slots.index] = cells
        else:
            self.cells.pop(slots.index, None)
        self._forget_derived()
        if old is not None and old.pool != slots.pool:
            self._leave(old)
        self.pools[slots.pool] = self.pools.get(slots.pool, 0) | 1 << slots.index
        if old is None or (old.pool, old.domains, old.types) != (slots.pool, slots.domains, slots.types):
            self._forget(slots.pool)

    def drop(self, index: int) -> None:
        """Removes a node."""
        old = self.slots[index]
        assert old is not None
        self.slots[index], self.type_masks[index] = None, ()
        self.reports_cpus &= ~(1 << index)
        self.reports_memory &= ~(1 << index)
        self.cells.pop(index, None)
        self._forget_derived()
        self._leave(old)

    def _leave(self, slots: NodeSlots) -> None:
        self.pools[slots.pool] &= ~(1 << slots.index)
        if not self.pools[slots.pool]:
            # As if it had never had a node: a layout that is built anew does not have it either.
            del self.pools[slots.pool]
        self._forget(slots.pool)

    def _forget_derived(self) -> None:
        self._plans.clear()
        self._totals.clear()
        self._levels.clear()
        self.most.clear()
        self.kinds.clear()

    def _forget(self, pool: str) -> None:
        self._topologies.pop(pool, None)
        self._types.pop(pool, None)

    def of_pool(self, pool: str) -> list[NodeSlots]:
        """The pool's nodes by index."""
        return [s for s in self.slots if s is not None and s.pool == pool]

    def total(self, pool: str, device_type: str | None) -> int:
        """Devices of all of a pool's nodes, of one type or of all."""
        found = self._totals.get((pool, device_type))
        if found is None:
            nodes = self.of_pool(pool)
            found = sum(len(s.types) if device_type is None else s.types.count(device_type) for s in nodes)
            self._totals[pool, device_type] = found
        return found

    def levels(self, pool: str) -> frozenset[str]:
        """Names of the levels that the pool's nodes report, "node" among them, and "nvlink" where a node reports its parts."""
        found = self._levels.get(pool)
        if found is None:
            parts = {NVLINK} if any(s.nvlink for s in self.of_pool(pool)) else set()
            found = self._levels[pool] = frozenset({NODE, *parts, *(level.name for level in self.topology(pool).levels)})
        return found

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
            found = self._plans[shape] = make_plan(shape, self.of_pool(shape.pool), self.types(shape.pool), self.topology(shape.pool))
        return found
