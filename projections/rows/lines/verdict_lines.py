"""A verdict in one line for a person. Pure."""

from functools import singledispatch

from trainhouse.events.model.base import Event
from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.handover import PoolPartRefused
from trainhouse.events.model.node import NodeNoticed, NodeProbed, SignatureRefused
from trainhouse.events.model.pool import NodeRestricted, Restriction
from trainhouse.events.model.repair import HaltFault, PartitionHalted
from trainhouse.events.model.verdict import (
    DataStalled,
    DeviceDegraded,
    FailureBlamed,
    GangHung,
    StoreSlow,
    StragglerDetected,
    VerdictLifted,
)


@singledispatch
def verdict_line(event: Event) -> str:
    """One line; the shell cuts it to length."""
    return type(event).__name__


@verdict_line.register
def _(event: NodeNoticed) -> str:
    return f"node {event.node_id} was told by {event.source} that it goes away: {event.reason or 'no reason given'}"


@verdict_line.register
def _(event: NodeForgotten) -> str:
    days = (event.at_ms - event.lost_at_ms) / 86_400_000
    return f"node {event.node_id} is forgotten: lost for {days:.1f} days; if it registers again, it is a new node"


@verdict_line.register
def _(event: NodeProbed) -> str:
    failed = ", ".join(check.name for check in event.checks if not check.passed)
    return f"self test {event.probe} of node {event.node_id} {'passed' if event.passed else f'failed: {failed or event.probe}'}"


@verdict_line.register
def _(event: SignatureRefused) -> str:
    where = f"{event.topic}, partition {event.partition}, offset {event.offset}"
    return f"a record in the name of {event.claimed} was set aside: {event.reason} ({where})"


@verdict_line.register
def _(event: PartitionHalted) -> str:
    what = "decides nothing" if event.fault is HaltFault.STOPPED else "places nothing new"
    pools = f" (pools {', '.join(event.pools[:5])}{' …' if len(event.pools) > 5 else ''})" if event.pools else ""
    return f"partition {event.partition} of {event.journal}{pools} {what}: {event.reason}"


@verdict_line.register
def _(event: PoolPartRefused) -> str:
    return (
        f"part {event.number + 1} of {event.of} of pool {event.pool} was refused by partition {event.to_partition}, to which partition "
        f"{event.from_partition} moved it: {event.reason}; see `trainhouse pool show {event.pool}`"
    )


@verdict_line.register
def _(event: NodeRestricted) -> str:
    what = "is open again" if event.restriction is Restriction.NONE else f"is {event.restriction.value}"
    return f"node {event.node_id} {what}, by {event.by}: {event.reason or 'no reason given'}"


@verdict_line.register
def _(event: GangHung) -> str:
    silent = f"; ranks {', '.join(map(str, event.ranks))} fell silent first" if event.ranks else ""
    return f"attempt {event.attempt} made no step for {event.silent_s:.1f} s (limit {event.limit_s:.1f} s){silent}"


@verdict_line.register
def _(event: StragglerDetected) -> str:
    return f"rank {event.rank} on {event.node_id} takes {event.slowdown:.2f} times as long as the fastest of its gang"


@verdict_line.register
def _(event: DataStalled) -> str:
    return f"rank {event.rank} waited for data {event.wait_share:.0%} of the last {event.window_s:.0f} s"


@verdict_line.register
def _(event: StoreSlow) -> str:
    return f"saves held training up for {event.stall_share:.0%} of the last {event.window_s:.0f} s"


@verdict_line.register
def _(event: DeviceDegraded) -> str:
    return f"device {event.device_id} of node {event.node_id} is degraded: {event.fault.value}, {event.value:g}"


@verdict_line.register
def _(event: VerdictLifted) -> str:
    about = event.job_id or event.device_id or event.node_id or ""
    return f"over: {event.of.removeprefix('trainhouse.').rpartition('.v')[0]} {about}".rstrip()


@verdict_line.register
def _(event: FailureBlamed) -> str:
    return f"attempt {event.attempt} failed, blamed on {event.category.value}: {event.summary}"


VERDICTS = tuple(kind for kind in verdict_line.registry if kind is not object)
