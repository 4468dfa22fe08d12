"""Index of the victims that hold devices, by node: made once for a plan, read for each gang that wants devices.

Holds: a victim is named by its ordinal in the list of victims. Gangs that share one device free it only together, so they are one item.
Never: looks at what is free.
"""

from collections.abc import Collection, Sequence

from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.shape import WHOLE
from trainhouse.scheduler.core.cycle.preemption.victim_selection import Item
from trainhouse.scheduler.core.cycle.preemption.victims import Victim


class Holdings:
    """Devices of victims. `whole[node]`: (ordinal, device bits); `shared[node]`: device bit to ordinals with their thousandths."""

    def __init__(self, victims: Sequence[Victim]) -> None:
        self.victims = victims
        self._ordinals = {v.job_id: ordinal for ordinal, v in enumerate(victims)}
        self.whole: dict[int, list[tuple[int, int]]] = {}
        self.shared: dict[int, dict[int, list[tuple[int, int]]]] = {}
        for ordinal, victim in enumerate(victims):
            for part in victim.running.placement:
                if part.milli >= WHOLE:
                    self.whole.setdefault(part.node, []).append((ordinal, part.devices))
                else:
                    self.shared.setdefault(part.node, {}).setdefault(part.devices, []).append((ordinal, part.milli))
        self.nodes = {*self.whole, *self.shared}

    def ordinal(self, job_id: str) -> int:
        """A victim's place in the list."""
        return self._ordinals[job_id]

    def items(self, cluster: Cluster, node: int, devices: int, eligible: Collection[int]) -> list[Item]:
        """Returns the part of a node's `devices` (bits) that can be freed, in whole devices.

        A shared device is freed only if all who use it are eligible: what it would then have left is a whole.
        """
        found = [
            Item((v,), (bits & devices).bit_count(), self.victims[v].cost)
            for v, bits in self.whole.get(node, ())
            if v in eligible and bits & devices
        ]
        for bit, users in sorted(self.shared.get(node, {}).items()):
            used = [(v, milli) for v, milli in users if v in eligible]
            left = cluster.shares.get(node, {}).get(bit.bit_length() - 1, 0)
            if bit & devices and left + sum(milli for _, milli in used) >= WHOLE:
                found.append(Item(tuple(v for v, _ in used), 1, sum(self.victims[v].cost for v, _ in used)))
        return found

    def on_device(self, node: int, bit: int, eligible: Collection[int]) -> list[Item]:
        """Returns the part of one device that can be freed, in thousandths."""
        out = [Item((v,), milli, self.victims[v].cost) for v, milli in self.shared.get(node, {}).get(bit, ()) if v in eligible]
        out.extend(Item((v,), WHOLE, self.victims[v].cost) for v, bits in self.whole.get(node, ()) if v in eligible and bits & bit)
        return out
