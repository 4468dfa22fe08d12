"""Trust in a node: the failures blamed on it, and the quarantine when they are too many.

Holds: one incident counts once, however many gangs it ended; failures count for a while only. A node that a person has closed is left as
it is. A quarantine of ours is by TRAINHOUSE, and names the failures.
Never: stops a gang (`probes` asks them to leave).
"""

from typing import Final

from trainhouse.events import FailureBlamed, FailureCategory, NodeRestricted, Restriction
from trainhouse.events.model.decisions import TrustChanged
from trainhouse.events.model.evidence import MAX_BLAMES, NodeBlame, Probe, Trust
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.events.model.phases import Allotment
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job, Node

HOUR_MS: Final = 3_600_000
MAX_SUMMARY_CHARS: Final = 256
MAX_LISTED: Final = 3


def is_ours(node: Node) -> bool:
    """Whether the node is in a quarantine that the platform alone asked for."""
    return node.restriction is Restriction.QUARANTINED and node.restricted_by == TRAINHOUSE


def hold_against(draft: Draft, job: Job, allotment: Allotment, blamed: FailureBlamed) -> None:
    """Notes a failure that is blamed on a node or a device, at the node."""
    if blamed.category not in (FailureCategory.NODE, FailureCategory.DEVICE) or blamed.node_id not in draft.state.nodes:
        return
    node = draft.state.node(blamed.node_id)
    note(
        draft,
        node,
        NodeBlame(
            at_ms=draft.now_ms,
            job_id=job.job_id,
            epoch=allotment.epoch,
            category=blamed.category,
            device_id=blamed.device_id,
            fingerprint=blamed.fingerprint,
            summary=blamed.summary[:MAX_SUMMARY_CHARS],
            incident=_incident(job, allotment, node, blamed),
        ),
    )


def _incident(job: Job, allotment: Allotment, node: Node, blamed: FailureBlamed) -> str:
    """Returns the key of an incident: the loss of a node for all its gangs; the hangs of one job, maybe its fault; any other failure."""
    if allotment.evidence.lost_node == node.node_id:
        boot = next((p.boot_id for p in allotment.placements if p.node_id == node.node_id), node.boot_id)
        return f"lost {boot} {allotment.evidence.lost_incarnation}"
    if allotment.evidence.hung is not None and blamed.category is FailureCategory.NODE:
        return f"hung {job.job_id}"
    return f"{job.job_id}/{allotment.epoch}"


def note(draft: Draft, node: Node, blame: NodeBlame, *more_closed: str) -> None:
    """Holds a failure against a node, closes devices of it, and puts the node in quarantine if it was too much."""
    rules = draft.state.book.policy(node.pool).failures.blame
    since_ms = draft.now_ms - round(rules.window_h * HOUR_MS)
    kept = tuple(b for b in node.trust.blames if b.at_ms >= since_ms)
    if not any(b.incident == blame.incident for b in kept):
        kept = (*kept, blame)[-MAX_BLAMES:]
    closed = tuple(sorted({*node.trust.closed_devices, *more_closed}))
    probe = node.trust.probe
    if more_closed and node.restriction is Restriction.NONE and rules.max_probes:
        probe = Probe(number=1, due_ms=draft.now_ms + round(rules.probe_after_s * 1000))
    trust = Trust.model_validate({"blames": kept, "closed_devices": closed, "probe": probe})
    if len(kept) >= rules.quarantine_after and node.restriction is Restriction.NONE:
        # Its gangs are asked to leave with the tick that follows.
        trust = trust.model_copy(update={"probe": Probe(number=0, due_ms=draft.now_ms)})
        restrict(draft, node, Restriction.QUARANTINED, _quarantine_reason(kept, rules.window_h))
    if trust != node.trust:
        draft.emit(TrustChanged(node_id=node.node_id, trust=trust, reason=blame.summary))


def _quarantine_reason(blames: tuple[NodeBlame, ...], window_h: float) -> str:
    last = "; ".join(f"{'' if b.job_id is None else f'job {b.job_id}: '}{b.summary}" for b in blames[-MAX_LISTED:])
    more = f", the last {MAX_LISTED} of them" if len(blames) > MAX_LISTED else ""
    return f"{len(blames)} failures within {window_h:g} h are blamed on it{more}: {last}"


def restrict(draft: Draft, node: Node, to: Restriction, reason: str) -> None:
    """The platform itself closes a node, or opens it."""
    fields = {"node_id": node.node_id, "pool": node.pool, "restriction": to, "reason": reason, "by": TRAINHOUSE, "at_ms": draft.now_ms}
    draft.emit(NodeRestricted.model_validate(fields))


def forget(draft: Draft, node: Node, reason: str) -> None:
    """Nothing is held against a node any more."""
    if node.trust != Trust():
        draft.emit(TrustChanged(node_id=node.node_id, trust=Trust(), reason=reason))


def leave_to_people(draft: Draft, node: Node) -> None:
    """A person closed the node: no self test opens it any more."""
    if node.trust.probe is not None:
        trust = node.trust.model_copy(update={"probe": None})
        draft.emit(TrustChanged(node_id=node.node_id, trust=trust, reason="a person decides about it"))
