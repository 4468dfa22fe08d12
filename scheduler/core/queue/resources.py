"""Resources of a gang, in one unit per resource, so that use and quotas can be added up exactly.

Holds: integers only; devices in thousandths (a whole one is 1000) by device type, sorted by type, none of them zero.
Never: knows nodes. The caller, which knows the placement, passes the device type that an "any" gang got.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainhouse.scheduler.core.cluster.shape import ANY, WHOLE, Placement, Shape


@dataclass(frozen=True, slots=True)
class Amounts:
    """A vector of resources. Devices of type "any" are those whose type is not chosen yet."""

    devices: tuple[tuple[str, int], ...] = ()
    cpus_milli: int = 0
    memory_bytes: int = 0
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.devices, self.cpus_milli, self.memory_bytes)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def all_milli(self) -> int:
        """Thousandths of devices of all types together."""
        return sum(milli for _, milli in self.devices)


def amounts_asked(shape: Shape, ranks: int | None = None) -> Amounts:
    """Returns the resources that a shape asks for before it is placed; `ranks`: of an elastic gang, how many (its least size, e.g.)."""
    devices: dict[str, int] = {}
    cpus_milli = memory_bytes = 0
    for block in shape.blocks:
        count = block.ranks if ranks is None else ranks
        device_type = block.types[0] if len(block.types) == 1 else ANY
        devices[device_type] = devices.get(device_type, 0) + count * shape.milli
        cpus_milli += count * round(block.cpus * 1000)
        memory_bytes += count * block.memory_bytes
    return Amounts(_sorted(devices.items()), cpus_milli, memory_bytes)


def amounts_least(shape: Shape) -> Amounts:
    """Returns the resources of a gang at its least size."""
    return amounts_asked(shape, shape.min_ranks or None)


def amounts_placed(shape: Shape, placement: Placement, types_of: Callable[[int], tuple[str, ...]]) -> Amounts:
    """Returns the resources of a placed gang. `types_of(node)`: the type of each device position of a node; "any" past its end."""
    devices: dict[str, int] = {}
    ranks = 0
    for part in placement:
        types, mask = types_of(part.node), part.devices
        ranks += mask.bit_count()
        while mask:
            low = mask & -mask
            position = low.bit_length() - 1
            device_type = types[position] if position < len(types) else ANY
            devices[device_type] = devices.get(device_type, 0) + (part.milli if part.milli < WHOLE else WHOLE)
            mask ^= low
    asked = amounts_asked(shape, ranks if len(shape.blocks) == 1 else None)
    return Amounts(_sorted(devices.items()), asked.cpus_milli, asked.memory_bytes)


def _sorted(devices: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(d for d in devices if d[1]))
