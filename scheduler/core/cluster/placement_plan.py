"""Placement plan of a shape on a layout, computed once for each shape: needs by block and type, and nodes that may serve them.

Holds: a plan says nothing about what is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainhouse.scheduler.core.cluster.node_slots import NVLINK, NodeSlots
from trainhouse.scheduler.core.cluster.shape import WHOLE, Block, Shape
from trainhouse.scheduler.core.cluster.topology import Topology


@dataclass(frozen=True, slots=True)
class Need:
    """A block's need, on one device type.

    `nodes`: where it may go (None: all of the pool). `mixed`: those of them where only some devices of the type have the memory that is
    asked for. `unit`: so many consecutive ranks share an NVLink domain. `one_cell`: all ranks of a node do. `cpus` in thousandths.
    """

    device_type: str
    ranks: int
    nodes: int | None = None
    mixed: int = 0
    device_memory_bytes: int = 0
    cpus_milli: int = 0
    memory_bytes: int = 0
    unit: int = 1
    one_cell: bool = False

    @property
    def costly(self) -> bool:
        """Whether nodes must be looked at one by one."""
        return bool(self.cpus_milli or self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """A shape's blocks (equal neighbours joined), each with one need for each type that it may use, in order of preference.

    `plain`: one block of one type, all nodes of the pool will do, and nothing else is asked.
    """

    blocks: tuple[Block, ...]
    needs: tuple[tuple[Need, ...], ...]
    plain: bool
    topology: Topology
    ranks: int


def make_plan(shape: Shape, nodes: Sequence[NodeSlots], known: tuple[str, ...], topology: Topology) -> Plan:
    """The plan for a shape on the nodes of its pool, which have the `known` types."""
    blocks = joined(shape.blocks)
    matching = _matching(shape, nodes) if shape.labels or not shape.spot else None
    needs = tuple(
        tuple(_need(shape, block, t, nodes, matching) for t in (dict.fromkeys(block.types) if block.types else known) if t in known)
        for block in blocks
    )
    first = needs[0][0] if len(needs) == 1 and len(needs[0]) == 1 else None
    plain = first is not None and first.nodes is None and not first.costly and shape.group == 1 and not shape.require and not shape.prefer
    return Plan(blocks, needs, plain and shape.milli == WHOLE, topology, shape.ranks)


def _need(shape: Shape, block: Block, device_type: str, nodes: Sequence[NodeSlots], matching: int | None) -> Need:
    mixed = 0
    if block.device_memory_bytes:
        enough = 0
        for slots in nodes:
            fits, of_type = slots.with_memory(block.device_memory_bytes), slots.mask_of(device_type)
            if fits & of_type:
                enough |= 1 << slots.index
                mixed |= (1 << slots.index) if of_type & ~fits else 0
        matching = enough if matching is None else matching & enough
    return Need(
        device_type,
        block.ranks,
        matching,
        mixed,
        block.device_memory_bytes,
        round(block.cpus * 1000),
        block.memory_bytes,
        shape.group,
        shape.require == NVLINK,
    )


def _matching(shape: Shape, nodes: Sequence[NodeSlots]) -> int:
    """Nodes that have all the labels, and are not spot where the shape does not want that."""
    mask, wanted = 0, set(shape.labels)
    for slots in nodes:
        if wanted <= set(slots.labels) and (shape.spot or not slots.spot):
            mask |= 1 << slots.index
    return mask


def joined(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Neighbouring blocks with equal needs as one block: what they are called does not matter to a device."""
    out: list[Block] = []
    for block in blocks:
        if not block.ranks:
            continue
        if out and replace(out[-1], ranks=0, role="") == replace(block, ranks=0, role=""):
            out[-1] = replace(out[-1], ranks=out[-1].ranks + block.ranks, role="")
        else:
            out.append(block)
    return tuple(out) or blocks[:1]
