"""Nodes: registration, which reconciles what is believed of a node with what it says, and loss.

Holds: a device is given again only after its node said that nothing of the old attempt is left: by AttemptStopped, or by registering
without it. A node that only was silent, and comes back with its ranks alive, still holds their devices.
"""

from typing import Final

from trainhouse.events import Epoch, GangAllocated, JobId, NodeDesiredState, NodeLost, NodeOrders, NodeRegistered
from trainhouse.events.model.decisions import DevicesFreed, Hold, NodeGivenUp, NodeJoined, TrustChanged
from trainhouse.events.model.node import AttemptRef
from trainhouse.events.model.phases import PartEnd, StopCause, StopKind, Stopping
from trainhouse.scheduler.core.attempts.eviction import holder_of
from trainhouse.scheduler.core.attempts.evidence import note_launch, note_lost
from trainhouse.scheduler.core.attempts.job_outputs import may_succeed
from trainhouse.scheduler.core.attempts.node_trust import is_ours
from trainhouse.scheduler.core.attempts.stopping import end_part, stop
from trainhouse.scheduler.core.handlers import self_tests
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job, Node, NodeHealth

# Of what stands in one record; the topic takes four times as much.
MOST_ORDERS_BYTES: Final = 1024 * 1024


def on_registered(draft: Draft, event: NodeRegistered, *, relayed: bool = False) -> None:
    """Takes the node in, settles what it no longer runs, and answers with all that it is to run.

    `relayed`: it came by way of the partition that its pool was on before. Of a node that registered here itself since, it is an old one.
    """
    old = draft.state.nodes.get(event.node_id)
    if relayed and old is not None and old.pool == event.pool and not old.relayed:
        return
    runs = {(str(r.job_id), int(r.epoch)) for r in event.running}
    holds = old.holds if old is not None else ()
    known = {(str(h.job_id), int(h.epoch)) for h in holds}
    strangers = tuple(Hold(job_id=JobId(j), epoch=Epoch(e)) for j, e in sorted(runs - known))
    fields = {name: getattr(event, name) for name in NodeJoined.model_fields if name not in ("holds", "relayed")}
    merged = tuple(sorted((*holds, *strangers), key=lambda h: (h.job_id, h.epoch)))
    fields["public_key"] = event.public_key or (old.public_key if old is not None else "")
    draft.emit(NodeJoined(**fields, holds=merged, relayed=relayed))
    if old is not None and old.boot_id != event.boot_id and old.trust.closed_devices:
        # A reset maps bad rows of a device's memory out: it is tried again.
        probe = old.trust.probe if is_ours(old) else None
        trust = old.trust.model_copy(update={"closed_devices": (), "probe": probe})
        draft.emit(TrustChanged(node_id=event.node_id, trust=trust, reason="it was rebooted"))
    if old is not None:
        self_tests.came_back(draft, old)
        for hold in holds:
            if (hold.job_id, hold.epoch) not in runs:
                _not_running(draft, old, event, hold)
    draft.emit(desired_state(draft, event))


def _not_running(draft: Draft, old: Node, event: NodeRegistered, hold: Hold) -> None:
    """Settles one attempt that the node had and does not run now."""
    job = holder_of(draft, event.node_id, hold)
    rebooted = old.boot_id != event.boot_id
    if not rebooted and job is not None and not _had_started(job, event.node_id) and not _had_ended(job, event.node_id):
        # It may not have read the order yet. Its agent answers the order, or the release, when it does. (Of a part that was given up
        # no retry follows: its release is in the log, before whatever comes next for these devices, so they are free.)
        if _store_moved(draft, job, event):
            reason = f"node {event.node_id}, which hosts the rendezvous, restarted its agent before the ranks began"
            note_launch(draft, job, event.node_id, reason)
            stop(draft, draft.state.job(job.job_id), StopCause(kind=StopKind.LOST, reason=reason))
        return
    draft.emit(DevicesFreed(node_id=event.node_id, job_id=hold.job_id, epoch=hold.epoch))
    if job is None:
        return
    if rebooted:
        lose_part(draft, job, old, f"node {event.node_id} was rebooted")
    else:
        end_part(draft, job, event.node_id, PartEnd.STOPPED)


def _had_started(job: Job, node_id: str) -> bool:
    return job.allotment is not None and node_id in job.allotment.started


def _had_ended(job: Job, node_id: str) -> bool:
    return job.allotment is not None and any(e.node_id == node_id for e in job.allotment.ended)


def _store_moved(draft: Draft, job: Job, event: NodeRegistered) -> bool:
    """Whether the gang's rendezvous address is not served any more."""
    allotment = job.allotment
    if allotment is None or isinstance(job.phase, Stopping) or allotment.placements[0].node_id != event.node_id:
        return False
    node = draft.state.node(event.node_id)
    try:
        port = node.port_of(allotment.placements[0].devices[0])
    except KeyError:
        return True
    return (node.address, port) != (allotment.master_address, allotment.master_port)


def desired_state(draft: Draft, event: NodeRegistered) -> NodeDesiredState:
    """All attempts that a node is to run now: whole orders, or their names where together they are too large for one record."""
    node = draft.state.node(event.node_id)
    allocations = []
    for hold in node.holds:
        job = holder_of(draft, node.node_id, hold)
        if job is not None and not isinstance(job.phase, Stopping):
            allocations.append(order_of(job))
    whole = sum(_size(a) for a in allocations) <= MOST_ORDERS_BYTES
    return NodeDesiredState(
        node_id=node.node_id,
        boot_id=node.boot_id,
        incarnation=node.incarnation,
        pool=node.pool,
        allocations=tuple(allocations) if whole else (),
        keeps=() if whole else tuple(AttemptRef(job_id=a.job_id, attempt=a.attempt, epoch=a.epoch) for a in allocations),
    )


def give_orders(draft: Draft) -> None:
    """At a tick: the next orders that a desired state only named, as many as one record holds for all nodes together."""
    room = MOST_ORDERS_BYTES
    for node_id in sorted(draft.state.ordering):
        node, orders = draft.state.node(node_id), list[GangAllocated]()
        for ref in node.orders_due:
            hold = node.hold_of(ref.job_id, ref.epoch)
            job = holder_of(draft, node_id, hold) if hold is not None else None
            if job is None or isinstance(job.phase, Stopping):
                continue
            order = order_of(job)
            size = _size(order)
            if size > room and room < MOST_ORDERS_BYTES:
                room = 0
                break
            room -= size
            orders.append(order)
        if orders or room > 0:
            draft.emit(
                NodeOrders(
                    node_id=node.node_id,
                    boot_id=node.boot_id,
                    incarnation=node.incarnation,
                    pool=node.pool,
                    allocations=tuple(orders),
                )
            )
        if room <= 0:
            return


def _size(order: GangAllocated) -> int:
    return len(order.model_dump_json())


def order_of(job: Job) -> GangAllocated:
    """The order to run a job's present attempt, as it was first given. The job must have a gang."""
    a = job.allotment
    assert a is not None
    return GangAllocated(
        job_id=job.job_id,
        attempt=a.attempt,
        epoch=a.epoch,
        pool=job.pool,
        spec=job.spec,
        spec_sha256=job.spec_sha256,
        placements=a.placements,
        master_address=a.master_address,
        master_port=a.master_port,
        restore_at_most=a.restore_at_most,
        accepted_bad=a.accepted_bad,
        skip_data=job.skip_data,
    )


def on_lost(draft: Draft, event: NodeLost) -> None:
    """Gives a node up, if the verdict is about its present registration, and restarts its gangs elsewhere."""
    node = draft.state.nodes.get(event.node_id)
    if node is None or node.health is NodeHealth.LOST:
        return
    if (node.boot_id, node.incarnation) != (event.boot_id, event.incarnation):
        return
    reason = f"node {event.node_id} was lost: silent for {event.silent_s:.1f} s"
    draft.emit(NodeGivenUp(node_id=event.node_id, reason=event.evidence or reason))
    for hold in node.holds:
        job = holder_of(draft, event.node_id, hold)
        if job is not None:
            lose_part(draft, job, node, reason)


def lose_part(draft: Draft, job: Job, lost: Node, reason: str) -> None:
    """A node's part of a job's attempt is gone without having said how: the attempt ends as lost, at no cost to the job's restarts.

    `lost`: the node as it was. A failure that was reported meanwhile is put down to the loss: ranks elsewhere fail when a peer's node dies.
    """
    allotment, node_id = job.allotment, lost.node_id
    if allotment is None or any(e.node_id == node_id for e in allotment.ended):
        return
    part = next(p for p in allotment.placements if p.node_id == node_id)
    if not _clean(job, part.ranks) or not may_succeed(job):
        cause = _cause_of_loss(job, reason)
        if cause is not None:
            note_lost(draft, job, lost)
            stop(draft, draft.state.job(job.job_id), cause)
    end_part(draft, draft.state.job(job.job_id), node_id, PartEnd.LOST)


def _clean(job: Job, ranks: range) -> bool:
    return job.allotment is not None and all(r in job.allotment.clean_ranks for r in ranks)


def _cause_of_loss(job: Job, reason: str) -> StopCause | None:
    """Returns the cause for which the loss of a part ends the attempt; None when it already ends for a cause that stands."""
    if isinstance(job.phase, Stopping) and job.phase.cause.kind not in (StopKind.RANK_FAILED, StopKind.HUNG):
        return None
    return StopCause(kind=StopKind.LOST, reason=reason)
