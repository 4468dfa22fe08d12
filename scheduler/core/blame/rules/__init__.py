"""Shipped rules, as data, by what they blame. The first that matches counts: the surest come first, what may only follow last."""

from typing import Final

from trainhouse.scheduler.core.blame.rules import code, data, device, network, platform, storage
from trainhouse.scheduler.core.blame.rules.rule import Rule

CAUSES: Final[tuple[Rule, ...]] = (
    *device.DEVICE,
    *platform.PLATFORM,
    *device.NODE,
    *code.MEMORY,
    *code.COLLECTIVES,
    *code.KERNELS,
    *storage.REFUSED,
    *storage.STORAGE,
    *data.DATA,
    *code.TORCH,
    *code.COMMANDS,
    *network.OUTSIDE,
)
CONSEQUENCES: Final[tuple[Rule, ...]] = (*network.FABRIC, *network.CONNECTIONS)
LAUNCH: Final[tuple[Rule, ...]] = (*platform.LAUNCH, *device.DEVICE, *device.NODE)

__all__ = ["CAUSES", "CONSEQUENCES", "LAUNCH", "Rule"]
