"""Supply of a node, in the form in which placement sees it: its record as slots, and the part of them that is free.

Holds: a function of the record alone; a device's position is its place in the registration, and only one with a rendezvous port has one.
A node that is lost, restricted, about to go away, or runs ranks that this scheduler did not place, is not open.
Never: knows jobs.
"""

from trainhouse.events import Device, Restriction
from trainhouse.scheduler.core.cluster.node_slots import NVLINK, NodeSlots
from trainhouse.scheduler.core.cluster.shape import WHOLE
from trainhouse.scheduler.core.state.demand import ISOLATED
from trainhouse.scheduler.core.state.records import Node, NodeHealth

LEVELS = (NVLINK, "rack", "switch", "pod", "zone")
"""Labels of a node that name its domain of a topology level."""
SPOT = "spot"
"""The label of a node that may be taken away at any time, with the value "true"."""


def slots_of(node: Node) -> NodeSlots:
    """The node as it is, whatever is free of it."""
    devices = node.offered
    return NodeSlots(
        index=node.index,
        node_id=str(node.node_id),
        pool=str(node.pool),
        types=tuple(d.type for d in devices),
        memory_bytes=tuple(d.memory_bytes for d in devices),
        domains=tuple((level, node.labels[level]) for level in LEVELS if node.labels.get(level)),
        labels=tuple(sorted(_labels(node).items())),
        spot=node.labels.get(SPOT) == "true",
        cpus=node.cpus,
        memory=node.memory_bytes,
        open=is_open(node),
        nvlink=_islands(node.node_id, devices),
        not_isolated=_not_isolated(node),
    )


def _labels(node: Node) -> dict[str, str]:
    own = {name: value for name, value in node.labels.items() if name not in ISOLATED}
    return own | (ISOLATED if node.isolation is not None and node.isolation.complete else {})


def _not_isolated(node: Node) -> str:
    if node.isolation is None:
        return "its agent does not say how it confines jobs"
    return "" if node.isolation.complete else node.isolation.reason or "its agent does not say why"


def is_open(node: Node) -> bool:
    """Whether devices of the node may be given at all."""
    if node.health is not NodeHealth.UP or node.restriction is not Restriction.NONE or node.notice is not None:
        return False
    return all(h.devices for h in node.holds)


def is_of_same_registration(one: Node, other: Node) -> bool:
    """Whether two records of a node have the same devices, labels and host; False, if need be, where they are equal but not the same."""
    same = one.devices is other.devices and one.rendezvous_ports is other.rendezvous_ports and one.labels is other.labels
    same = same and one.isolation is other.isolation
    return same and (one.index, one.pool, one.cpus, one.memory_bytes) == (other.index, other.pool, other.cpus, other.memory_bytes)


def free_of(node: Node) -> tuple[int, dict[int, int], float, int]:
    """Free positions (a bit mask), thousandths left of shared ones, free cpus, free bytes of memory."""
    position = positions(node)
    free, shares = (1 << len(position)) - 1, dict[int, int]()
    for hold in node.holds:
        for device in hold.devices:
            at = position.get(device)
            if at is None:
                continue
            free &= ~(1 << at)
            if hold.device_share < WHOLE:
                shares[at] = shares.get(at, WHOLE) - hold.device_share
    cpus = node.cpus - sum(h.cpus for h in node.holds)
    return free, shares, cpus, node.memory_bytes - sum(h.memory_bytes for h in node.holds)


def shut_of(node: Node) -> int:
    """Positions that get no new ranks though the node is open (a bit mask)."""
    if not node.trust.closed_devices:
        return 0
    position = positions(node)
    return sum(1 << position[d] for d in node.trust.closed_devices if d in position)


def positions(node: Node) -> dict[str, int]:
    """The position of each device that is offered."""
    return {str(d.device_id): at for at, d in enumerate(node.offered)}


def _islands(node_id: str, devices: tuple[Device, ...]) -> tuple[str, ...]:
    """By position, the group of devices that are each other's NVLink peers, directly or not; empty where all are, or none was reported."""
    if not any(d.nvlink_peers for d in devices):
        return ()
    at = {d.device_id: n for n, d in enumerate(devices)}
    island = list(range(len(devices)))
    for n, device in enumerate(devices):
        for peer in device.nvlink_peers:
            if peer in at:
                low, high = sorted((island[n], island[at[peer]]))
                island = [low if i == high else i for i in island]
    return () if len(set(island)) == 1 else tuple(f"{node_id}/{i}" for i in island)
