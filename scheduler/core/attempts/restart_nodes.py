"""Choice of nodes for a restart: the same devices if possible, else near them; away from the blamed node.

A gang that fails holds on to its devices with a claim, as one that is moved does: on its nodes are its warm processes and its page cache,
and a failure that is not its own costs it no place in the queue. When its attempt is over it starts on all of them again, or lets them go:
if some are gone, if it has to pause, if the failure is its own, or if a node of it is to blame.

Holds: a gang claims what it has, and nothing else. Never on a node that is closed, and never a share of a device.
Never: frees a device.
"""

from trainhouse.events import FailureBlamed, FailureCategory, NodeId, NodePlacement
from trainhouse.events.model.phases import Allotment, PartEnd
from trainhouse.events.model.pool import ClaimDropped, ClaimedPart, DevicesClaimed
from trainhouse.scheduler.core.attempts.restart_budget import backoff_ms, streak_of
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.supply import is_open

_CULPRITS = (FailureCategory.NODE, FailureCategory.DEVICE, FailureCategory.NETWORK)


def hold_on(draft: Draft, job: Job) -> None:
    """A gang that fails keeps its devices on open nodes while its nodes end it, so that no other gang takes some of them meanwhile."""
    allotment, recovery = job.allotment, draft.state.book.policy(job.pool).failures.recovery
    if allotment is None or job.job_id in draft.state.claims or not recovery.prefer_same_nodes:
        return
    if job.spec.shares_device or backoff_ms(streak_of(job, draft.now_ms), recovery):
        return
    ended = {e.node_id for e in allotment.ended}
    there = [p for p in allotment.placements if p.node_id not in ended and _is_there(draft, p)]
    if there:
        parts = tuple(ClaimedPart(node_id=p.node_id, devices=p.devices) for p in there)
        draft.emit(DevicesClaimed(job_id=job.job_id, parts=parts, victims=(), made_at_ms=draft.now_ms))


def _is_there(draft: Draft, part: NodePlacement) -> bool:
    """Whether a node is open and still offers all devices of a part."""
    node = draft.state.node(part.node_id)
    offered = {d.device_id for d in node.offered} - set(node.trust.closed_devices)
    return is_open(node) and offered.issuperset(part.devices)


def has_all(draft: Draft, job: Job, allotment: Allotment) -> bool:
    """Whether it holds on to every part of its gang."""
    claim = draft.state.claims.get(job.job_id)
    return claim is not None and len(claim.parts) == len(allotment.placements)


def let_go(draft: Draft, job: Job) -> None:
    """Drops the claim of a failed gang, so that its devices are free for all, in the order of the policy."""
    claim = draft.state.claims.get(job.job_id)
    if claim is not None and not claim.victims:
        draft.emit(ClaimDropped(job_id=job.job_id))


def to_avoid(allotment: Allotment, blamed: FailureBlamed | None) -> tuple[NodeId, ...]:
    """Nodes on which the failure would likely come again."""
    nodes = {allotment.evidence.launch_node, allotment.evidence.lost_node}
    if blamed is not None and blamed.category in _CULPRITS:
        nodes.add(blamed.node_id)
    mine = {p.node_id for p in allotment.placements}
    return tuple(sorted(n for n in nodes if n is not None and n in mine))


def to_prefer(draft: Draft, job: Job, allotment: Allotment, avoid: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Nodes of the last attempt that are as they were."""
    if not draft.state.book.policy(job.pool).failures.recovery.prefer_same_nodes:
        return ()
    lost = {e.node_id for e in allotment.ended if e.how is PartEnd.LOST}
    return tuple(sorted(p.node_id for p in allotment.placements if p.node_id not in lost and p.node_id not in avoid))
