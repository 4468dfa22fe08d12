"""Records of one job and of one node: frozen, replaced as a whole.

Holds: equal histories give equal records; tuples are sorted where order means nothing.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events import (
    AttemptNumber,
    Device,
    Epoch,
    EventId,
    JobId,
    JobSpec,
    LastCheckpoint,
    Limits,
    Model,
    NodeId,
    NodeNoticed,
    PoolName,
    Restriction,
    SkippedData,
)
from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.decisions import Hold
from trainhouse.events.model.evidence import JobFailure, Trust
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.job_outputs import OutputAnswered, OutputsSealed
from trainhouse.events.model.node import AttemptRef, NodeIsolation
from trainhouse.events.model.phases import Allotment, Pending, Phase, Progress, Tally


class JobOutputs(Model):
    """Outputs of the present attempt as its agent reported them, and intake's answers.

    `requests`: how often intake was asked to publish them, first at `since_ms` and last at `asked_at_ms`.
    """

    sealed: OutputsSealed
    requests: int = 0
    since_ms: int = 0
    asked_at_ms: int = 0
    answers: tuple[OutputAnswered, ...] = ()


class Job(Model):
    """A job that is not finished. `epoch` is that of its last attempt; `number` is its place in the order of submission.

    `queued_at_ms`, `waits_since_ms` and `saved_at_ms` are times of the journal: no clock of an outsider or an agent decides anything.
    `expected_ms`: the remaining run time that was expected from history when it began to wait; None: nothing was known.
    `commits`: its newest checkpoints, oldest first; `past`: its last failures. The next attempt goes to `prefer_nodes` if it can, keeps
    away from `avoid_nodes` if it can, and begins from no newer commit than `restore_at_most`. `ran_on`: all nodes that its
    attempts were given, by name; they report checkpoints also when the attempt is over. `status_seq`: the highest number that a status of
    it may have; statuses without a record of their own are numbered from `live_seq` + 1 on (see `status`), None: there are none.
    `bad_shards`: those that its present attempt could not read. `bad_samples`: so many sent it to review; `accepted_bad`: so many were
    accepted by letting it go on. `skip_data`: positions that its loaders leave out since its loss diverged over them.
    """

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
    queued_at_ms: int = 0
    waits_since_ms: int = 0
    saved_at_ms: int | None = None
    expected_ms: int | None = None
    allocated_at_ms: int | None = None
    running_at_ms: int | None = None
    status_seq: int = 0
    status_at_ms: int = 0
    live_seq: int | None = Field(None, exclude_if=is_absent)
    commits: tuple[int, ...] = ()
    past: tuple[JobFailure, ...] = ()
    prefer_nodes: tuple[NodeId, ...] = ()
    avoid_nodes: tuple[NodeId, ...] = ()
    restore_at_most: int | None = None
    ran_on: tuple[NodeId, ...] = ()
    bad_shards: tuple[str, ...] = Field((), exclude_if=is_absent)
    bad_samples: int | None = Field(None, exclude_if=is_absent)
    accepted_bad: int | None = Field(None, exclude_if=is_absent)
    skip_data: tuple[SkippedData, ...] = Field((), exclude_if=is_absent)
    outputs: JobOutputs | None = Field(None, exclude_if=is_absent)

    @property
    def quarantined(self) -> tuple[str, ...]:
        """Shards of its version that were in quarantine when it was admitted."""
        return () if self.spec.data is None else self.spec.data.quarantined

    @property
    def pool(self) -> PoolName:
        return self.spec.pool

    @property
    def awaits_answers(self) -> bool:
        """Whether intake was asked to publish its outputs: it has no devices any more, and ends by the answers."""
        return self.outputs is not None and self.outputs.requests > 0

    def ran_ms(self, now_ms: int) -> int:
        """Returns the time for which it has had devices, all attempts together, in milliseconds."""
        if self.outputs is not None and self.awaits_answers:
            now_ms = min(now_ms, self.outputs.since_ms)
        current = now_ms - self.allotment.allocated_at_ms if self.allotment is not None else 0
        return self.tally.ran_ms + max(0, current)


class NodeHealth(StrEnum):
    """Whether devices of a node may be given."""

    UP = "UP"
    LOST = "LOST"


class Node(Model):
    """A node as it registered last, what holds its devices, what it is closed for, and what is held against it.

    `index` is its bit in masks of nodes, free for another when it is forgotten. `lost_at_ms`: since when it is lost. `notice`: it goes
    away; another start of its agent knows nothing of that any more. `orders_due`: attempts that its desired state only named, whose
    orders go out at the next ticks. `relayed`: it has not registered at this partition itself since its pool came here.
    """

    node_id: NodeId
    index: int
    boot_id: str
    incarnation: str
    pool: PoolName
    address: str
    devices: tuple[Device, ...]
    rendezvous_ports: tuple[int, ...]
    cpus: float = 0
    memory_bytes: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    isolation: NodeIsolation | None = None
    holds: tuple[Hold, ...] = ()
    health: NodeHealth = NodeHealth.UP
    restriction: Restriction = Restriction.NONE
    restricted_by: str = ""
    restricted_for: str = ""
    notice: NodeNoticed | None = None
    trust: Trust = Trust()
    public_key: str = ""
    orders_due: tuple[AttemptRef, ...] = ()
    lost_at_ms: int | None = None
    relayed: bool = Field(False, exclude_if=is_no)

    @property
    def closed_by_person(self) -> bool:
        """Whether it stays closed until a person opens it."""
        return self.restriction is not Restriction.NONE and self.restricted_by != TRAINHOUSE

    def hold_of(self, job_id: str, epoch: int) -> Hold | None:
        """Returns the devices that one attempt holds here, or None."""
        return next((h for h in self.holds if h.job_id == job_id and h.epoch == epoch), None)

    @property
    def offered(self) -> tuple[Device, ...]:
        """All its devices that a rank could ever get: one without a rendezvous port is not offered."""
        return self.devices[: len(self.rendezvous_ports)]

    def port_of(self, device_id: str) -> int:
        """The rendezvous port of a device's slot. Raises KeyError for a device that the node does not offer."""
        for device, port in zip(self.devices, self.rendezvous_ports, strict=False):
            if device.device_id == device_id:
                return port
        raise KeyError(device_id)
