"""A cycle's actions as decisions: gangs get their devices, others are asked to leave, promises are made and ended.

Holds: one action is one change of the state, in the cycle's order; positions of nodes become ids of devices in the order of ranks.
Never: chooses.
"""

from typing import Final

from trainhouse.events import Epoch, JobId, NodePlacement
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.phases import StopCause, StopKind
from trainhouse.events.model.pool import ClaimDropped, ClaimedPart, DevicesClaimed, StartReserved, StartUnreserved
from trainhouse.scheduler.core.attempts.eviction import ask_to_leave
from trainhouse.scheduler.core.cluster.capacity import bits_of
from trainhouse.scheduler.core.cluster.shape import Part, Placement
from trainhouse.scheduler.core.queue.entries import Action, Claim, Evict, Eviction, Hold, Reservation, Reserve, Start, Unhold, Unreserve
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Node
from trainhouse.scheduler.core.state.state import ScheduleState

_KINDS: Final = {
    Eviction.PREEMPTED: StopKind.PREEMPTED,
    Eviction.RECLAIMED: StopKind.PREEMPTED,
    Eviction.MOVED: StopKind.MOVED,
    Eviction.RESIZED: StopKind.RESIZED,
    Eviction.DRAINED: StopKind.DRAINED,
}


def carry_out(draft: Draft, action: Action) -> None:
    """Decides what an action says."""
    match action:
        case Start(job_id, placement):
            allocate(draft, job_id, placement)
        case Evict():
            ask_to_leave(draft, draft.state.job(action.job_id), _cause(action), action.deadline_ms)
        case Hold(claim):
            draft.emit(_claimed(draft.state, claim))
        case Unhold(job_id):
            draft.emit(ClaimDropped(job_id=JobId(job_id)))
        case Reserve(reservation):
            draft.emit(_reserved(draft.state, reservation))
        case Unreserve(job_id):
            draft.emit(StartUnreserved(job_id=JobId(job_id)))


def allocate(draft: Draft, job_id: str, placement: Placement) -> None:
    """Gives a waiting job its gang. Rank 0's node hosts the rendezvous store, on the port of rank 0's slot."""
    job, state = draft.state.job(job_id), draft.state
    parts = _placements(state, placement)
    master = state.node(parts[0].node_id)
    draft.emit(
        GangAllocated(
            job_id=job.job_id,
            attempt=job.attempt,
            epoch=Epoch(job.epoch + 1),
            pool=job.pool,
            spec=job.spec,
            spec_sha256=job.spec_sha256,
            placements=parts,
            master_address=master.address,
            master_port=master.port_of(parts[0].devices[0]),
            restore_at_most=job.restore_at_most,
            accepted_bad=job.accepted_bad,
            skip_data=job.skip_data,
        )
    )
    draft.publish(job_id)


def _placements(state: ScheduleState, placement: Placement) -> tuple[NodePlacement, ...]:
    parts, first_rank = [], 0
    for part in placement:
        node = state.node(state.names[part.node])
        chosen = NodePlacement(
            node_id=node.node_id,
            boot_id=node.boot_id,
            address=node.address,
            first_rank=first_rank,
            devices=tuple(node.offered[at].device_id for at in bits_of(part.devices)),
        )
        first_rank += len(chosen.devices)
        parts.append(chosen)
    return tuple(parts)


def _cause(action: Evict) -> StopCause:
    reason = (
        action.reason
        or {
            Eviction.PREEMPTED: f"preempted for job {action.for_job}",
            Eviction.RECLAIMED: f"it runs on borrowed devices, which go back to their team for job {action.for_job}",
            Eviction.MOVED: f"moved, so that job {action.for_job} can start",
            Eviction.RESIZED: f"resized to {action.ranks} ranks" + (f" for job {action.for_job}" if action.for_job else ""),
            Eviction.DRAINED: "its node is drained",
        }[action.why]
    )
    return StopCause(kind=_KINDS[action.why], reason=reason)


def _claimed(state: ScheduleState, claim: Claim) -> DevicesClaimed:
    return DevicesClaimed(
        job_id=JobId(claim.job_id),
        parts=tuple(_claimed_part(state.node(state.names[p.node]), p) for p in claim.placement),
        victims=tuple(JobId(v) for v in claim.victims),
        made_at_ms=claim.made_ms,
    )


def _claimed_part(node: Node, part: Part) -> ClaimedPart:
    devices = tuple(node.offered[at].device_id for at in bits_of(part.devices))
    return ClaimedPart(node_id=node.node_id, devices=devices, device_share=part.milli)


def _reserved(state: ScheduleState, held: Reservation) -> StartReserved:
    nodes = tuple(state.node(state.names[at]).node_id for at in bits_of(held.nodes))
    return StartReserved(job_id=JobId(held.job_id), start_ms=held.start_ms, node_ids=nodes, made_at_ms=held.made_ms)
