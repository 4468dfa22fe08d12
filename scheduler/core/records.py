"""What the scheduler knows of one job and of one node: frozen records, replaced as a whole.

Holds: equal histories give equal records; tuples are sorted where order means nothing.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events import (
    AttemptNumber,
    Device,
    DeviceId,
    Epoch,
    EventId,
    JobId,
    JobSpec,
    LastCheckpoint,
    Limits,
    Model,
    NodeId,
    PoolName,
)
from trainhouse.events.decisions import Hold
from trainhouse.events.phases import Allotment, Pending, Phase, Progress, Tally


class Job(Model):
    """A job that is not finished. `epoch` is that of its last attempt; `number` is its place in the order of submission."""

    job_id: JobId
    number: int
    spec: JobSpec
    spec_sha256: str
    submission_id: EventId
    submitted_at_ms: int
    priority: int
    limits: Limits
    phase: Phase = Pending()
    reason: str = ""
    attempt: AttemptNumber = AttemptNumber(0)
    epoch: Epoch = Epoch(0)
    tally: Tally = Tally()
    allotment: Allotment | None = None
    progress: Progress | None = None
    last_checkpoint: LastCheckpoint | None = None
    allocated_at_ms: int | None = None
    running_at_ms: int | None = None
    status_seq: int = 0
    status_at_ms: int = 0

    @property
    def pool(self) -> PoolName:
        return self.spec.pool

    @property
    def queue(self) -> tuple[str, str]:
        """Which queue it waits in: its pool and the device type that it asks for."""
        return (self.spec.pool, self.spec.resources.device_type)

    @property
    def place_in_queue(self) -> tuple[int, int, str]:
        """Priority first (0 is the highest), then the order of submission."""
        return (self.priority, self.number, self.job_id)

    def ran_ms(self, now_ms: int) -> int:
        """How long it has had devices, all attempts together."""
        current = now_ms - self.allotment.allocated_at_ms if self.allotment is not None else 0
        return self.tally.ran_ms + max(0, current)


class NodeHealth(StrEnum):
    """Whether devices of a node may be given."""

    UP = "UP"
    LOST = "LOST"


class Node(Model):
    """A node as it registered last, and what holds its devices."""

    node_id: NodeId
    boot_id: str
    incarnation: str
    pool: PoolName
    address: str
    devices: tuple[Device, ...]
    rendezvous_ports: tuple[int, ...]
    cpus: float = 0
    memory_bytes: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    health: NodeHealth = NodeHealth.UP

    def hold_of(self, job_id: str, epoch: int) -> Hold | None:
        """What one attempt holds here, if anything."""
        return next((h for h in self.holds if h.job_id == job_id and h.epoch == epoch), None)

    def offered(self) -> dict[str, tuple[DeviceId, ...]]:
        """All its devices that a rank could ever get, by type: one without a rendezvous port is not offered."""
        by_type: dict[str, list[DeviceId]] = {}
        for device, _ in zip(self.devices, self.rendezvous_ports, strict=False):
            by_type.setdefault(device.type, []).append(device.device_id)
        return {t: tuple(ids) for t, ids in by_type.items()}

    def free(self) -> dict[str, tuple[DeviceId, ...]]:
        """Devices that can be given now, by type. None on a lost node, or on one that runs what nobody here gave it."""
        if self.health is not NodeHealth.UP or any(not h.devices for h in self.holds):
            return {}
        held = {d for h in self.holds for d in h.devices}
        left = {t: tuple(d for d in ids if d not in held) for t, ids in self.offered().items()}
        return {t: ids for t, ids in left.items() if ids}

    def port_of(self, device_id: str) -> int:
        """The rendezvous port of a device's slot. Raises KeyError for a device that the node does not offer."""
        for device, port in zip(self.devices, self.rendezvous_ports, strict=False):
            if device.device_id == device_id:
                return port
        raise KeyError(device_id)
