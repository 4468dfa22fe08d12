"""A node as the placement sees it.

Holds: what does not change while jobs come and go; a changed node is a new value under the same index.
Never: says which devices are free.
"""

from dataclasses import dataclass

NVLINK, NODE = "nvlink", "node"


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """One node. `types` and `memory_bytes` go by device position. `domains`: (level, domain) for levels wider than parts of a node.

    `nvlink`: by device position, the part of this node whose devices are peers of each other; empty: all are, or the node reports a domain
    of level "nvlink", which then may hold several nodes. `cpus` and `memory` (bytes) of 0: not reported, never a limit.
    `open` False: cordoned, draining, quarantined or lost. `not_isolated`: why it does not confine jobs whole.
    """

    index: int
    node_id: str
    pool: str
    types: tuple[str, ...]
    memory_bytes: tuple[int, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    spot: bool = False
    cpus: float = 0.0
    memory: int = 0
    open: bool = True
    nvlink: tuple[str, ...] = ()
    not_isolated: str = ""

    def mask_of(self, device_type: str) -> int:
        """Bits of the positions that have this type."""
        return sum(1 << p for p, t in enumerate(self.types) if t == device_type)

    def cells(self) -> tuple[int, ...]:
        """The devices of each NVLink domain within this node, by lowest position; empty or one: the node is not divided."""
        by_name: dict[str, int] = {}
        for position, name in enumerate(self.nvlink):
            by_name[name] = by_name.get(name, 0) | 1 << position
        return tuple(sorted(by_name.values(), key=lambda m: m & -m))

    def with_memory(self, least_bytes: int) -> int:
        """Bits of the devices that have at least so much memory."""
        return sum(1 << p for p, m in enumerate(self.memory_bytes) if m >= least_bytes)
