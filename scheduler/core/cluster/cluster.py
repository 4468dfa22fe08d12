"""The cluster: which devices are free, where a gang goes, and what follows from giving it devices.

Holds: a device is free for one placement at most; `give` undoes `take`, `unclaim` undoes `claim`; a fork is independent of what it was
forked from; decisions depend on indexes of nodes, never on the order of the calls.
Never: knows jobs, time or events.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from trainhouse.scheduler.core.cluster.demand_mix import Mix
from trainhouse.scheduler.core.cluster.free_index import Bay
from trainhouse.scheduler.core.cluster.layout import Layout
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.node_states import UNREPORTED, State, States
from trainhouse.scheduler.core.cluster.shape import WHOLE, Part, Placement, Shape, by_block

Key = tuple[str, str]
NO_SHARES: Mapping[int, int] = MappingProxyType({})


class Cluster:
    """Devices of all pools of a partition."""

    __slots__ = (
        "_indexed_shares",
        "_mine",
        "_states",
        "bays",
        "claimed",
        "cpus_milli",
        "free_bits",
        "idle",
        "kept",
        "layout",
        "memory_free",
        "mix",
        "shares",
        "shut",
    )

    def __init__(self) -> None:
        self.layout = Layout()
        self._mine = True
        self.bays: dict[Key, Bay] = {}
        self.idle: list[int] = []
        """Idle devices, by node; claimed ones and those of closed nodes included."""
        self.free_bits: list[int] = []
        """Devices that may be given now, by node."""
        self.claimed: dict[int, int] = {}
        """Devices that are not free, by node: those of claims, and those that are shut."""
        self.kept: dict[int, int] = {}
        """Of them, those of claims."""
        self.shut: dict[int, int] = {}
        """Of them, those that no gang gets, not even a claim's."""
        self.shares: dict[int, dict[int, int]] = {}
        """Thousandths left of shared devices, by node and position."""
        self._indexed_shares: dict[int, tuple[tuple[str, int], ...]] = {}
        """What bays know of the shares of a node."""
        self.cpus_milli: list[int] = []
        """Thousandths of cpus that are free, and bytes of memory, by node: below 0 where more is held than the node reports."""
        self.memory_free: list[int] = []
        self.mix = Mix()
        """What is usual here: `mix.seen(shape)` for every job that comes."""
        self._states: States | None = None

    def fork(self) -> "Cluster":
        """A cluster to try things on."""
        new = Cluster.__new__(Cluster)
        new.layout, new._mine, self._mine = self.layout, False, False
        new.bays = {key: bay.copy() for key, bay in self.bays.items()}
        new.idle, new.free_bits = self.idle.copy(), self.free_bits.copy()
        new.claimed, new.kept, new.shut = self.claimed.copy(), self.kept.copy(), self.shut.copy()
        new.shares = {node: left.copy() for node, left in self.shares.items()}
        new._indexed_shares = self._indexed_shares.copy()
        new.cpus_milli, new.memory_free = self.cpus_milli.copy(), self.memory_free.copy()
        new.mix = self.mix.fork()
        new._states = self._states.copy() if self._states is not None else None
        return new

    def all_idle(self) -> "Cluster":
        """The same nodes, all open, with nothing taken."""
        new = Cluster()
        for slots in self.layout.slots:
            if slots is not None:
                new.put_node(slots if slots.open else replace(slots, open=True))
        new.mix = self.mix.fork()
        return new

    # ---- what the fleet is made of

    def put_node(self, slots: NodeSlots) -> None:
        """Adds a node with all devices idle, or replaces it: what is taken of it stays taken."""
        index = slots.index
        old = self.layout.slots[index] if index < len(self.layout.slots) else None
        if old == slots:
            return
        if not self._mine:
            self.layout, self._mine = self.layout.copy(), True
        while len(self.idle) <= index:
            self.idle.append(0)
            self.free_bits.append(0)
            self.cpus_milli.append(0)
            self.memory_free.append(0)
        self._leave(index)
        whole = (1 << len(slots.types)) - 1
        before = (1 << len(old.types)) - 1 if old is not None else 0
        self.idle[index] = self.idle[index] & whole | whole & ~before
        self.cpus_milli[index] += round(slots.cpus * 1000) - (round(old.cpus * 1000) if old is not None else 0)
        self.memory_free[index] += slots.memory - (old.memory if old is not None else 0)
        self.layout.put(slots)
        self._enter(index)

    def drop_node(self, index: int) -> None:
        """Removes a node of which nothing is taken or claimed: there is none at its index until another is put there."""
        if not self._mine:
            self.layout, self._mine = self.layout.copy(), True
        self.shut_devices(index, 0)
        self._leave(index)
        self.idle[index] = self.cpus_milli[index] = self.memory_free[index] = 0
        self.shares.pop(index, None)
        self._indexed_shares.pop(index, None)
        self.layout.drop(index)
        self._enter(index)

    def set_free(
        self, node: int, devices: int, shares: Mapping[int, int] = NO_SHARES, cpus_free: float = 0.0, memory_free: int = 0
    ) -> None:
        """Sets the free resources of a node: device bits, thousandths left of shared devices, cpus, bytes. Claims stay."""
        self.idle[node] = devices
        # A device without anything left is passed too: when one of its users goes, that part comes free, and not the whole.
        left = {p: m for p, m in shares.items() if 0 <= m < WHOLE}
        if left:
            self.shares[node] = dict(sorted(left.items()))
        else:
            self.shares.pop(node, None)
        self.cpus_milli[node], self.memory_free[node] = round(cpus_free * 1000), memory_free
        self._refresh(node)

    def _leave(self, node: int) -> None:
        slots = self.layout.slots[node] if node < len(self.layout.slots) else None
        if slots is None or not slots.open:
            return
        bits = self.free_bits[node]
        for device_type, mask in self.layout.type_masks[node]:
            self.bays[slots.pool, device_type].leave(node, mask.bit_count(), (bits & mask).bit_count())
        self.free_bits[node] = 0
        for device_type, milli in self._indexed_shares.pop(node, ()):
            self.bays[slots.pool, device_type].share(node, milli, False)

    def _enter(self, node: int) -> None:
        if self._states is not None:
            self._states.changed.append(node)
        slots = self.layout.slots[node]
        if slots is None or not slots.open:
            self.free_bits[node] = 0
            return
        bits = self.free_bits[node] = self.idle[node] & ~self.claimed.get(node, 0)
        for device_type, mask in self.layout.type_masks[node]:
            bay = self.bays.get((slots.pool, device_type))
            if bay is None:
                bay = self.bays[slots.pool, device_type] = Bay()
            bay.enter(node, mask.bit_count(), (bits & mask).bit_count())
        self._index_shares(node)

    def _refresh(self, node: int) -> None:
        """Makes what is counted of a node follow what is idle, shared and claimed there."""
        if self._states is not None:
            self._states.changed.append(node)
        if node in self.shares or node in self._indexed_shares:
            self._index_shares(node)
        slots = self.layout.slots[node]
        if slots is None or not slots.open:
            return
        old = self.free_bits[node]
        new = self.idle[node] & ~self.claimed.get(node, 0)
        if old == new:
            return
        self.free_bits[node] = new
        for device_type, mask in self.layout.type_masks[node]:
            before, after = (old & mask).bit_count(), (new & mask).bit_count()
            if before != after:
                self.bays[slots.pool, device_type].move(node, before, after)

    def _index_shares(self, node: int) -> None:
        slots = self.layout.slots[node]
        new, old = self._shares_of(node), self._indexed_shares.pop(node, ())
        if slots is None or not slots.open:
            return
        if new:
            self._indexed_shares[node] = new
        for device_type, milli in old:
            if (device_type, milli) not in new:
                self.bays[slots.pool, device_type].share(node, milli, False)
        for device_type, milli in new:
            if (device_type, milli) not in old:
                self.bays[slots.pool, device_type].share(node, milli, True)

    def _shares_of(self, node: int) -> tuple[tuple[str, int], ...]:
        """(type, thousandths left) of the shared devices of an open node that may be given, each once, sorted."""
        slots, left = self.layout.slots[node], self.shares.get(node)
        if slots is None or not slots.open or not left:
            return ()
        claimed = self.claimed.get(node, 0)
        return tuple(sorted({(slots.types[p], m) for p, m in left.items() if not claimed >> p & 1 and m < WHOLE}))

    def follow_states(self) -> States:
        """Nodes by state, up to date; kept from the first time on that they are asked for."""
        if self._states is None:
            self._states = States()
            self._states.changed.extend(i for i, s in enumerate(self.layout.slots) if s is not None)
        for node in self._states.changed:
            self._states.regroup(node, self._states_of(node))
        self._states.changed.clear()
        self._states.usual(self.mix.typical)
        return self._states

    def _states_of(self, node: int) -> list[tuple[Key, State]]:
        """Returns the free resources of each device type on an open node."""
        slots = self.layout.slots[node]
        if slots is None or not slots.open:
            return []
        claimed, shares = self.claimed.get(node, 0), self.shares.get(node, {})
        cpus = self.cpus_milli[node] if slots.cpus else UNREPORTED
        memory = self.memory_free[node] if slots.memory else UNREPORTED
        out: list[tuple[Key, State]] = []
        for device_type, mask in self.layout.type_masks[node]:
            left = tuple(sorted(m for p, m in shares.items() if mask >> p & 1 and not claimed >> p & 1))
            out.append(((slots.pool, device_type), State((self.free_bits[node] & mask).bit_count(), left, cpus, memory)))
        return out

    # ---- taking and giving

    def take(self, placement: Placement, shape: Shape) -> None:
        """Gives a gang its devices. They must be free, or claimed for it."""
        for part in placement:
            if part.milli >= WHOLE:
                self.idle[part.node] &= ~part.devices
            else:
                self._use_share(part.node, part.devices, -part.milli)
            self._refresh(part.node)
        self._use_host(placement, shape, -1)

    def give(self, placement: Placement, shape: Shape) -> None:
        """Takes a gang's devices back."""
        for part in placement:
            if part.milli >= WHOLE:
                self.idle[part.node] |= part.devices
            else:
                self._use_share(part.node, part.devices, part.milli)
            self._refresh(part.node)
        self._use_host(placement, shape, 1)

    def _use_share(self, node: int, device: int, milli: int) -> None:
        position = device.bit_length() - 1
        left = self.shares.setdefault(node, {})
        left[position] = left.get(position, WHOLE) + milli
        if left[position] >= WHOLE:
            del left[position]
            self.idle[node] |= device
        else:
            self.idle[node] &= ~device
        if not left:
            del self.shares[node]

    def _use_host(self, placement: Placement, shape: Shape, sign: int) -> None:
        """Cpus and memory of the nodes, for blocks that ask for them."""
        if not shape.hosted:
            return
        for part, block, ranks in by_block(placement, shape.blocks):
            self.cpus_milli[part] += sign * ranks * round(block.cpus * 1000)
            self.memory_free[part] += sign * ranks * block.memory_bytes
            if self._states is not None:
                self._states.changed.append(part)

    def claim(self, placement: Placement) -> None:
        """Keeps devices for one gang: not free, also when those who use them leave."""
        for part in placement:
            self._set_kept(part.node, self.kept.get(part.node, 0) | part.devices, self.shut.get(part.node, 0))

    def unclaim(self, placement: Placement) -> None:
        """Ends a claim."""
        for part in placement:
            self._set_kept(part.node, self.kept.get(part.node, 0) & ~part.devices, self.shut.get(part.node, 0))

    def shut_devices(self, node: int, devices: int) -> None:
        """Sets the devices (bits) of an open node that get no new ranks, also when those who use them leave; 0: none."""
        if self.shut.get(node, 0) != devices:
            self._set_kept(node, self.kept.get(node, 0), devices)

    def _set_kept(self, node: int, kept: int, shut: int) -> None:
        for table, bits in ((self.kept, kept), (self.shut, shut), (self.claimed, kept | shut)):
            if bits:
                table[node] = bits
            else:
                table.pop(node, None)
        self._refresh(node)

    def all_free(self, placement: Placement) -> bool:
        """Whether a claimed placement can be taken: its nodes are open and its devices are idle."""
        return all(self._is_open(p.node) and not self.shut.get(p.node, 0) & p.devices and self._has(p) for p in placement)

    def _has(self, part: Part) -> bool:
        if self.idle[part.node] & part.devices == part.devices:
            return True
        left = self.shares.get(part.node, {}).get(part.devices.bit_length() - 1, 0)
        return part.milli < WHOLE and left >= part.milli

    def _is_open(self, node: int) -> bool:
        slots = self.layout.slots[node] if node < len(self.layout.slots) else None
        return slots is not None and slots.open

    # ---- numbers

    def free(self, pool: str, device_type: str | None = None) -> int:
        """Devices that may be given now, of one type or of all."""
        if device_type is not None:
            bay = self.bays.get((pool, device_type))
            return bay.free if bay is not None else 0
        return sum(bay.free for (p, _), bay in self.bays.items() if p == pool)

    def total(self, pool: str, device_type: str | None = None) -> int:
        """Devices of all nodes, closed and lost ones included."""
        return self.layout.total(pool, device_type)

    def node_mask(self, pool: str) -> int:
        """All nodes of a pool."""
        return self.layout.pools.get(pool, 0)

    def levels(self, pool: str) -> set[str]:
        """The topology levels that nodes of the pool report, and "node"; "nvlink" too where a node reports its parts."""
        return set(self.layout.levels(pool))
