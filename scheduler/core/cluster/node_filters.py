"""Reasons for which a node refuses one rank of a gang, and masks of the nodes whose reason does not depend on free resources.

Holds: a node has one reason for each block: the first that keeps it from taking a rank.
"""

from collections.abc import Sequence
from enum import StrEnum

from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.placement_plan import Need, Plan
from trainhouse.scheduler.core.cluster.shape import Block, Shape

ISOLATED_LABEL = "trainhouse.isolated"


class FilterResult(StrEnum):
    """Reason for which a node refuses one rank of a gang, or ROOM if it takes it."""

    CLOSED = "CLOSED"
    OTHER_TYPE = "OTHER_TYPE"
    DEVICE_MEMORY = "DEVICE_MEMORY"
    LABEL = "LABEL"
    ISOLATION = "ISOLATION"
    SPOT = "SPOT"
    FULL = "FULL"
    CLAIMED = "CLAIMED"
    CPUS = "CPUS"
    MEMORY = "MEMORY"
    GROUP = "GROUP"
    ROOM = "ROOM"


def kinds_of(shape: Shape, plan: Plan, nodes: Sequence[NodeSlots]) -> tuple[dict[FilterResult, int], ...]:
    """For each block, the masks of the nodes that refuse it whatever is free."""
    out = []
    for block, needs in zip(plan.blocks, plan.needs, strict=True):
        masks: dict[FilterResult, int] = {}
        for slots in nodes:
            result = _kind(slots, shape, block, needs)
            if result is not None:
                masks[result] = masks.get(result, 0) | 1 << slots.index
        out.append(masks)
    return tuple(out)


def _kind(slots: NodeSlots, shape: Shape, block: Block, needs: tuple[Need, ...]) -> FilterResult | None:
    if not slots.open:
        return FilterResult.CLOSED
    wanted = [need.device_type for need in needs if need.device_type in slots.types]
    if not wanted:
        return FilterResult.OTHER_TYPE
    if block.device_memory_bytes and not any(slots.with_memory(block.device_memory_bytes) & slots.mask_of(t) for t in wanted):
        return FilterResult.DEVICE_MEMORY
    lacking = set(shape.labels) - set(slots.labels)
    if lacking:
        return FilterResult.ISOLATION if slots.not_isolated and all(name == ISOLATED_LABEL for name, _ in lacking) else FilterResult.LABEL
    return FilterResult.SPOT if slots.spot and not shape.spot else None
