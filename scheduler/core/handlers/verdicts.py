"""Handling of verdicts on gangs, devices and nodes that are not well.

Holds: a verdict counts for the attempt, the boot and the agent's start that it names; one on a gang that leaves already changes nothing. A
gang that can still save is asked to, before it is moved; one that hangs cannot.
Never: attributes a failure.
"""

from typing import Final

from trainhouse.events import DeviceDegraded, DeviceFault, FailureCategory, GangHung, LossDiverged, NodeNoticed, OnDivergence
from trainhouse.events.model.decisions import EvidenceFound
from trainhouse.events.model.evidence import NodeBlame
from trainhouse.events.model.phases import Checkpointing, StopCause, StopKind, Stopping
from trainhouse.scheduler.core.attempts.data_skips import SKIPS_SINCE
from trainhouse.scheduler.core.attempts.eviction import all_leave, ask_to_leave, jobs_on
from trainhouse.scheduler.core.attempts.evidence import note_degraded, note_hung
from trainhouse.scheduler.core.attempts.node_trust import note
from trainhouse.scheduler.core.attempts.stopping import stop
from trainhouse.scheduler.core.handlers.self_tests import put_off
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import NodeHealth

MAX_RANKS_LISTED: Final = 8
# A notice whose end passed so long ago by journal time came from a clock that is off.
LATE_NOTICE_MS: Final = 600_000


def on_hung(draft: Draft, event: GangHung) -> None:
    """Ends an attempt that makes no steps any more. One that was asked to save will not: what it was asked for happens without."""
    job = draft.live(event.job_id)
    if job is None or job.allotment is None or job.allotment.epoch != event.epoch or isinstance(job.phase, Stopping):
        return
    if event.node_id is not None and not any(p.node_id == event.node_id for p in job.allotment.placements):
        return  # a node reports a gang that was never placed on it
    if not isinstance(job.phase, Checkpointing):
        note_hung(draft, job, event)
    stop(draft, draft.state.job(job.job_id), StopCause(kind=StopKind.HUNG, reason=_hung_reason(event)))


def _hung_reason(event: GangHung) -> str:
    at = f" after step {event.step}" if event.step is not None else ""
    ranks = ", ".join(str(r) for r in event.ranks[:MAX_RANKS_LISTED]) + (" …" if len(event.ranks) > MAX_RANKS_LISTED else "")
    first = f"; silent first: rank{'s' if len(event.ranks) > 1 else ''} {ranks}" if event.ranks else ""
    return f"the gang hung{at}: no step for {event.silent_s:.1f} s, where {event.limit_s:.1f} s are usual at most{first}"


def on_noticed(draft: Draft, event: NodeNoticed) -> None:
    """A node goes away: nothing new comes to it, and its gangs save and leave while there is time."""
    node = draft.state.nodes.get(event.node_id)
    if node is None or node.health is NodeHealth.LOST or (node.boot_id, node.incarnation) != (event.boot_id, event.incarnation):
        return
    if node.notice is not None and node.notice.deadline_ms <= event.deadline_ms:
        return
    draft.emit(event)
    reason = f": {event.reason}" if event.reason else ""
    cause = StopCause(kind=StopKind.DRAINED, reason=f"node {node.node_id} goes away ({event.source}){reason}")
    # A quarter of the time is kept for what follows a save: its ranks end, and the agent says so.
    all_leave(draft, node, cause, draft.now_ms + _left_ms(event, draft.now_ms) * 3 // 4)


def _left_ms(event: NodeNoticed, now_ms: int) -> int:
    """The time until a node goes: by journal time, or by its own clock alone where that is off; the shorter one."""
    left_ms, own_ms = event.deadline_ms - now_ms, event.deadline_ms - event.at_ms
    known = ([left_ms] if left_ms > -LATE_NOTICE_MS else []) + ([own_ms] if own_ms > 0 else [])
    return max(0, min(known, default=0))


def on_degraded(draft: Draft, event: DeviceDegraded) -> None:
    """Errors of a device's memory: its gangs save now, and move; it gets no new ranks before it passes a self test.

    A slow device is reported, and used on.
    """
    node = draft.state.nodes.get(event.node_id)
    if node is None or node.boot_id != event.boot_id or not any(d.device_id == event.device_id for d in node.devices):
        return
    there = jobs_on(draft, node, event.device_id)
    for job_id in there:
        note_degraded(draft, draft.state.job(job_id), event)
    if event.fault is not DeviceFault.ECC:
        return
    if event.device_id in node.trust.closed_devices:
        put_off(draft, node, event.device_id)
        return
    summary = f"{event.value:g} new uncorrected memory errors of device {event.device_id}"
    blame = NodeBlame(
        at_ms=draft.now_ms,
        category=FailureCategory.DEVICE,
        device_id=event.device_id,
        summary=summary,
        incident=f"ecc {event.device_id} {event.since_ms}",
    )
    note(draft, node, blame, event.device_id)
    cause = StopCause(kind=StopKind.DRAINED, reason=f"it moves off device {event.device_id} of node {node.node_id}: {summary}")
    deadline_ms = draft.now_ms + round(draft.state.book.policy(node.pool).failures.recovery.move_deadline_s * 1000)
    for job_id in there:
        ask_to_leave(draft, draft.state.job(job_id), cause, deadline_ms)


def on_diverged(draft: Draft, event: LossDiverged) -> None:
    """The session of a rank stopped training, since its loss makes no sense any more."""
    job = draft.live(event.job_id)
    if job is None or job.allotment is None or job.allotment.epoch != event.epoch or job.spec.divergence.action is OnDivergence.IGNORE:
        return
    if job.allotment.evidence.diverged is not None or not any(p.node_id == event.node_id for p in job.allotment.placements):
        return
    if draft.level < SKIPS_SINCE:  # programs of before read no such field
        event = event.model_copy(update={"data": ()})
    draft.emit(EvidenceFound(job_id=job.job_id, epoch=event.epoch, at_ms=draft.now_ms, diverged=event))
    if not isinstance(job.phase, Stopping):
        reason = f"its loss diverged at step {event.step}: {event.loss}"
        stop(draft, draft.state.job(job.job_id), StopCause(kind=StopKind.DIVERGED, reason=reason))
