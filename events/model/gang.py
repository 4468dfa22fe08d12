"""Events from the scheduler to node agents: what to run, what to stop, what to save.

Holds: a GangAllocated is self-contained, an agent needs nothing else to start its ranks. Each carries the fence (attempt, epoch).
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent, is_no
from trainhouse.events.model.base import Event, Model
from trainhouse.events.model.bounds import MOST_DEVICES, MOST_ITEMS, Count, CutText, DueMs, DurationS, ShortText, SmallCount
from trainhouse.events.model.ids import AttemptNumber, DeviceId, Epoch, JobId, NodeId, PoolName
from trainhouse.events.model.node import AttemptRef
from trainhouse.events.model.skipped_data import MOST_SKIPPED, SkippedData
from trainhouse.events.model.spec import JobSpec


class NodePlacement(Model):
    """The part of a gang on one node: its ranks are `first_rank`, `first_rank + 1`, … in the order of `devices`."""

    node_id: NodeId
    boot_id: ShortText
    address: ShortText = Field(description="address at which ranks on other nodes reach this one's")
    first_rank: SmallCount = Field(description="lowest rank on the node")
    devices: tuple[DeviceId, ...] = Field(
        min_length=1, max_length=MOST_DEVICES, description="one device for each rank, in the order of ranks"
    )

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + len(self.devices))


class GangAllocated(Event, type="trainhouse.gang.allocated.v1"):
    """All ranks of one attempt have their devices: start them."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    pool: PoolName
    spec: JobSpec
    spec_sha256: ShortText
    placements: tuple[NodePlacement, ...] = Field(
        min_length=1, max_length=MOST_ITEMS, description="nodes of the gang with their ranks and devices"
    )
    master_address: ShortText = Field(description="address of rank 0 (MASTER_ADDR)")
    master_port: int = Field(ge=1, le=65535, description="port of rank 0 (MASTER_PORT)")
    restore_at_most: Count | None = Field(None, description="begin from no newer commit than this one")
    accepted_bad: Count | None = Field(
        None, exclude_if=is_absent, description="bad samples of the job that a person accepted; its limit counts from there"
    )
    skip_data: tuple[SkippedData, ...] = Field(
        (), max_length=MOST_SKIPPED, exclude_if=is_absent, description="data that its loaders leave out"
    )

    @property
    def world_size(self) -> int:
        return sum(len(p.devices) for p in self.placements)

    def on_node(self, node_id: str) -> NodePlacement | None:
        """The part on one node, if any."""
        return next((p for p in self.placements if p.node_id == node_id), None)


class GangReleased(Event, type="trainhouse.gang.released.v1"):
    """An attempt must end: SIGTERM, `grace_s`, SIGKILL. Devices are free when every node reported AttemptStopped."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    pool: PoolName
    node_ids: tuple[NodeId, ...] = Field(max_length=MOST_ITEMS, description="nodes that have ranks of the attempt")
    reason: CutText
    grace_s: DurationS = Field(15.0, ge=0, description="seconds between SIGTERM and SIGKILL")
    stacks: bool = Field(False, exclude_if=is_no, description="the gang hung: nodes take its ranks' Python stacks before they end them")
    for_survivors: bool = Field(False, description="ranks that are left may save for all: nodes tell what their ranks have of their own")


class CheckpointRequested(Event, type="trainhouse.checkpoint.requested.v1"):
    """A running attempt is asked to save now; with `then_stop` its ranks end after the save."""

    job_id: JobId
    attempt: AttemptNumber
    epoch: Epoch
    pool: PoolName
    node_ids: tuple[NodeId, ...] = Field(max_length=MOST_ITEMS, description="nodes that have ranks of the attempt")
    reason: CutText
    deadline_ms: DueMs = Field(description="time by which the save must be done, in milliseconds since 1970")
    then_stop: bool = Field(False, description="whether the ranks end after the save")
    survivors: tuple[SmallCount, ...] = Field(
        (), max_length=MOST_ITEMS, description="the ranks that are left and save without the others; none: all do"
    )


class NodeDesiredState(Event, type="trainhouse.node.desired-state.v1"):
    """The answer to a registration: all that this node is to run. What it runs beyond that must stop.

    `keeps`: attempts that it is to run too, whose orders are too large to stand here together; they follow as NodeOrders.
    """

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    allocations: tuple[GangAllocated, ...] = Field(
        (), max_length=MOST_ITEMS, description="attempts that the node is to run, with their orders"
    )
    keeps: tuple[AttemptRef, ...] = Field(
        (), max_length=MOST_ITEMS, exclude_if=is_absent, description="attempts that it is to run too, whose orders follow as NodeOrders"
    )


class NodeOrders(Event, type="trainhouse.node.orders.v1"):
    """Orders of attempts that a NodeDesiredState only named. They stop nothing."""

    node_id: NodeId
    boot_id: ShortText
    incarnation: ShortText
    pool: PoolName
    allocations: tuple[GangAllocated, ...] = Field(max_length=MOST_ITEMS, description="orders of attempts")
