"""Who gets which devices: a small strategy contract, and the strategy of this version.

Holds: a policy is a pure function of what it is shown; its answer is a whole gang or a reason; no device is
given twice, none of another type.
Never: changes anything. What follows from its answer (orders, states) is decided elsewhere.

StrictOrder serves priority (0 highest), then the order of submission. A gang that does not fit now blocks everything behind it that could
take devices of the types it may use: so a large gang is never starved by small ones that slip past it, at the price of devices that stay
idle meanwhile. Other device types go on. Backfill and preemption are other strategies under the same contract.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from trainhouse.events import DeviceId, JobSpec, NodePlacement
from trainhouse.scheduler.core.fold import GIB
from trainhouse.scheduler.core.records import Job, Node
from trainhouse.scheduler.core.state import ScheduleState

ANY = "any"


@dataclass(frozen=True, slots=True)
class Placed:
    """A whole gang. Rank 0's node hosts the rendezvous store at `master_port`."""

    placements: tuple[NodePlacement, ...]
    master_address: str
    master_port: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """No gang now. `blocks` are the device types that nobody behind this job may take; None: all of the pool's."""

    reason: str
    blocks: frozenset[str] | None


class Policy(Protocol):
    """A placement strategy."""

    name: str

    def place(self, view: ScheduleState, job: Job, blocked: frozenset[str]) -> Placed | WhyNot:
        """The gang for one job, from free devices of types that are not `blocked`, or why not."""


class StrictOrder:
    """Whole gangs on as few nodes as possible: the tightest node that takes all, else the emptiest nodes first."""

    name = "strict-order"

    def place(self, view: ScheduleState, job: Job, blocked: frozenset[str]) -> Placed | WhyNot:
        ranks, wanted = job.spec.gang.ranks, job.spec.resources.device_type
        types = device_types(view, job.pool) if wanted == ANY else [wanted]
        for device_type in types:
            if device_type in blocked or view.free_count.get((job.pool, device_type), 0) < ranks:
                continue
            chosen = _choose(_rooms(view, job, device_type), ranks)
            if chosen is not None:
                return _placed(chosen)
        return WhyNot(_reason(view, job, types), None if wanted == ANY else frozenset({wanted}))


@dataclass(frozen=True, slots=True)
class _Room:
    """How many ranks of a job a node takes now, and the devices for them."""

    node: Node
    devices: tuple[DeviceId, ...]
    size: int


def device_types(view: ScheduleState, pool: str) -> list[str]:
    """Every device type that has free devices in a pool, sorted."""
    return sorted(t for (p, t), count in view.free_count.items() if p == pool and count > 0)


def capacity(nodes: Iterable[Node], spec: JobSpec) -> int:
    """The most ranks of one device type that these nodes, all idle, lost ones included, could ever hold of a gang."""
    wanted = spec.resources.device_type
    by_type: dict[str, int] = {}
    for node in nodes:
        for device_type, ids in node.offered().items():
            if wanted in (ANY, device_type):
                by_type[device_type] = by_type.get(device_type, 0) + _limit(spec, len(ids), node.cpus, node.memory_bytes, 0, 0)
    return max(by_type.values(), default=0)


def _rooms(view: ScheduleState, job: Job, device_type: str) -> Iterable[_Room]:
    per = job.spec.resources
    bounded = per.cpus_per_device is not None or per.memory_gib_per_device is not None
    for node_id in view.nodes_of_pool.get(job.pool, ()):
        devices = view.free_of_node[node_id].get(device_type)
        if not devices:
            continue
        node, size = view.nodes[node_id], len(devices)
        if bounded:
            cpus, memory = sum(h.cpus for h in node.holds), sum(h.memory_bytes for h in node.holds)
            size = _limit(job.spec, size, node.cpus, node.memory_bytes, cpus, memory)
        yield _Room(node, devices, size)


def _limit(spec: JobSpec, devices: int, cpus: float, memory_bytes: int, cpus_held: float, memory_held: int) -> int:
    """How many of `devices` can be used with the cpus and memory that each needs; a node that told none of either has enough."""
    per = spec.resources
    if per.cpus_per_device and cpus:
        devices = min(devices, int((cpus - cpus_held) // per.cpus_per_device))
    if per.memory_gib_per_device and memory_bytes:
        devices = min(devices, (memory_bytes - memory_held) // round(per.memory_gib_per_device * GIB))
    return max(0, devices)


def _choose(rooms: Iterable[_Room], ranks: int) -> list[tuple[_Room, int]] | None:
    """Whole on the tightest node (rooms come in order of node ids, so the first exact fit is it), else on the emptiest ones."""
    parts, whole = [], None
    for room in rooms:
        if room.size == ranks:
            return [(room, ranks)]
        if room.size > ranks and (whole is None or room.size < whole.size):
            whole = room
        parts.append(room)
    if whole is not None:
        return [(whole, ranks)]
    chosen, left = [], ranks
    for room in sorted(parts, key=lambda r: (-r.size, r.node.node_id)):
        take = min(room.size, left)
        if take == 0:
            return None
        chosen.append((room, take))
        left -= take
        if left == 0:
            return chosen
    return None


def _placed(chosen: list[tuple[_Room, int]]) -> Placed:
    placements, first_rank = [], 0
    for room, count in chosen:
        node = room.node
        placements.append(
            NodePlacement(
                node_id=node.node_id,
                boot_id=node.boot_id,
                address=node.address,
                first_rank=first_rank,
                devices=room.devices[:count],
            )
        )
        first_rank += count
    master = chosen[0][0].node
    return Placed(tuple(placements), master.address, master.port_of(placements[0].devices[0]))


def _reason(view: ScheduleState, job: Job, types: list[str]) -> str:
    ranks, wanted = job.spec.gang.ranks, job.spec.resources.device_type
    if not view.nodes_of_pool.get(job.pool):
        return f"waiting: pool {job.pool} has no node yet"
    free = max((view.free_count.get((job.pool, t), 0) for t in types), default=0)
    what = "devices" if wanted == ANY else f"devices of type {wanted}"
    beside = ", with the cpus and memory that the spec asks for," if free >= ranks else ""
    return f"waiting for {ranks} free {what}{beside} in pool {job.pool}; free now: {free}"
