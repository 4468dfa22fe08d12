"""Evidence of an attempt that goes wrong, kept until its end, when the failure is attributed.

Holds: bounded; a repeat adds nothing. What a release did itself (its SIGTERM, its SIGKILL) is no evidence, unless the gang hung and the
rank's stack shows where; nor is the end of a gang that was asked to leave for a reason of its own.
Never: judges.
"""

from typing import Final

from trainhouse.events import NodeId, NodePlacement, RankExited
from trainhouse.events.model.decisions import EvidenceFound
from trainhouse.events.model.evidence import MAX_DEGRADED, MAX_ENDS, MAX_LAST_WORDS, AttemptEvidence, EndedRank
from trainhouse.events.model.phases import Checkpointing, Stopping
from trainhouse.events.model.verdict import DeviceDegraded, GangHung
from trainhouse.events.wire.collectives import LEAD as RECORDED
from trainhouse.events.wire.stack_tops import LEAD as STACK
from trainhouse.scheduler.core.blame import gist
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job, Node

OUR_SIGNALS: Final = (9, 15)


def note_end(draft: Draft, job: Job, part: NodePlacement, report: RankExited) -> None:
    """A rank of the attempt ended otherwise than well."""
    phase, known = job.phase, _known(job)
    if known is None or len(known.ends) >= MAX_ENDS or any(e.rank == report.rank for e in known.ends):
        return
    if isinstance(phase, Checkpointing) or (isinstance(phase, Stopping) and not phase.cause.kind.is_failure):
        return
    in_time = isinstance(phase, Stopping) and report.signal in OUR_SIGNALS and report.exited_at_ms >= (phase.since_ms or 0)
    ours = in_time or (isinstance(phase, Stopping) and report.by_agent)
    if ours and not (known.hung is not None and (RECORDED in report.reason or STACK in report.reason)):
        return
    _note(draft, job, end=_ended(part, report.rank, report))


def note_unexplained(draft: Draft, job: Job, part: NodePlacement, rank: int) -> None:
    """A rank is gone, and its exit is unknown."""
    known = _known(job)
    if known is not None and len(known.ends) < MAX_ENDS and not any(e.rank == rank for e in known.ends):
        device = part.devices[rank - part.first_rank]
        _note(draft, job, end=EndedRank(rank=rank, node_id=part.node_id, device_id=device, at_ms=draft.now_ms))


def note_launch(draft: Draft, job: Job, node_id: NodeId, reason: str) -> None:
    """A node could not start its ranks."""
    known = _known(job)
    if known is not None and not known.launch_error:
        _note(draft, job, launch_error=reason[:MAX_LAST_WORDS], launch_node=node_id)


def note_lost(draft: Draft, job: Job, node: Node) -> None:
    """A node is gone, with its part of the gang."""
    known = _known(job)
    if known is not None and known.lost_node is None:
        _note(draft, job, lost_node=node.node_id, lost_incarnation=node.incarnation)


def note_hung(draft: Draft, job: Job, verdict: GangHung) -> None:
    """The gang made no step any more."""
    _note(draft, job, hung=verdict)


def note_degraded(draft: Draft, job: Job, verdict: DeviceDegraded) -> None:
    """A device of the gang is not what it should be; the gang may go on all the same."""
    known = _known(job)
    if known is None or len(known.degraded) >= MAX_DEGRADED:
        return
    if not any((d.device_id, d.fault) == (verdict.device_id, verdict.fault) for d in known.degraded):
        _note(draft, job, degraded=verdict)


def _known(job: Job) -> AttemptEvidence | None:
    return job.allotment.evidence if job.allotment is not None else None


def _note(draft: Draft, job: Job, **fields: object) -> None:
    draft.emit(EvidenceFound.model_validate({"job_id": job.job_id, "epoch": job.epoch, "at_ms": draft.now_ms} | fields))


def _ended(part: NodePlacement, rank: int, report: RankExited) -> EndedRank:
    return EndedRank(
        rank=rank,
        node_id=part.node_id,
        device_id=part.devices[rank - part.first_rank],
        exit_code=report.exit_code,
        signal=report.signal,
        text=gist(report.reason, MAX_LAST_WORDS),
        at_ms=report.exited_at_ms,
    )
