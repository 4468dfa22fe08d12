"""Attribution of a failed attempt: from its evidence to the blamed component, as a decision that is published.

Holds: an attempt without evidence is not attributed; if attribution itself fails, the cause is unknown, and the decision says so.
Never: decides what becomes of the job (`budget` does) or of the node (`trust` does).
"""

from typing import Final

from trainhouse.events import FailureBlamed, FailureCategory
from trainhouse.events.model.evidence import MAX_PAST, AttemptEvidence, EndedRank
from trainhouse.events.model.phases import Allotment
from trainhouse.events.model.verdict import MAX_EVIDENCE_CHARS
from trainhouse.scheduler.core.attempts.end_line import end_line
from trainhouse.scheduler.core.blame import Blamed, Evidence, PastFailure, RankEnd, blame
from trainhouse.scheduler.core.blame.rank_exit import RAISED
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job

MAX_SUMMARY_CHARS: Final = 1024
_NOTHING: Final = AttemptEvidence()


def blame_attempt(draft: Draft, job: Job, allotment: Allotment, reason: str) -> FailureBlamed | None:
    """Judges the attempt by its evidence and the rules of its pool; None where there is no evidence."""
    found = allotment.evidence
    if found.model_copy(update={"degraded": ()}) == _NOTHING:
        return None
    rules = draft.state.book.policy(job.pool).failures.blame.rules
    try:
        blamed = blame(_evidence(draft, job, allotment), rules)
    except Exception as error:  # rules of a policy and texts of strangers: whatever they do, the attempt must come to its end
        summary = f"it could not be judged: {type(error).__name__}: {error}"
        blamed = Blamed(FailureCategory.UNKNOWN, "not-judged", summary)
    verdict = _verdict(draft, job, allotment, blamed, reason)
    draft.emit(verdict)
    return verdict


def _evidence(draft: Draft, job: Job, allotment: Allotment) -> Evidence:
    found = allotment.evidence
    return Evidence(
        job_id=str(job.job_id),
        ends=tuple(RankEnd(e.rank, e.node_id, e.device_id, e.exit_code, e.signal, e.text, e.at_ms) for e in found.ends),
        launch_error=found.launch_error,
        launch_node=found.launch_node or "",
        lost_node=found.lost_node or "",
        hung=found.hung,
        degraded=found.degraded,
        diverged=found.diverged,
        placements=allotment.placements,
        past=_past(draft, job, allotment),
        failed_at_ms=found.failed_at_ms or draft.now_ms,
    )


def _past(draft: Draft, job: Job, allotment: Allotment) -> tuple[PastFailure, ...]:
    """The job's own last failures, then those of other jobs that were blamed on nodes of its gang."""
    saved_ms = job.saved_at_ms or 0
    own = [
        PastFailure(str(job.job_id), f.at_ms, f.category, f.fingerprint, f.node_id or "", f.mine, got_on=saved_ms > f.at_ms, hang=f.hang)
        for f in job.past
    ]
    others = [
        PastFailure(str(b.job_id), b.at_ms, b.category, b.fingerprint, str(part.node_id))
        for part in allotment.placements
        for b in draft.state.node(part.node_id).trust.blames[-MAX_PAST:]
        if b.job_id is not None and b.job_id != job.job_id
    ]
    return (*own, *others)


def _verdict(draft: Draft, job: Job, allotment: Allotment, blamed: Blamed, reason: str) -> FailureBlamed:
    hung, end = allotment.evidence.hung, _end_of(allotment, blamed.rank)
    detail = hung.evidence if hung is not None else end.text if end is not None else ""
    fields = {
        "pool": job.pool,
        "at_ms": draft.now_ms,
        "evidence": (f"{reason}\n{detail}" if detail else reason)[:MAX_EVIDENCE_CHARS],
        "job_id": job.job_id,
        "attempt": allotment.attempt,
        "epoch": allotment.epoch,
        "category": blamed.category,
        "rule": blamed.rule,
        "summary": blamed.summary[:MAX_SUMMARY_CHARS],
        "node_id": blamed.node_id,
        "device_id": blamed.device_id,
        "rank": blamed.rank,
        "shard": blamed.shard,
        "fingerprint": blamed.fingerprint,
        "mine": blamed.mine,
        "hang": blamed.hang,
        "lost_steps": _lost_steps(job),
        "failed_at_ms": allotment.evidence.failed_at_ms,
    }
    return FailureBlamed.model_validate(fields)


def _lost_steps(job: Job) -> int | None:
    """Steps since the last checkpoint; None where the attempt reported none."""
    if job.progress is None or job.progress.epoch != job.epoch:
        return None
    return max(0, job.progress.step - (job.last_checkpoint.step if job.last_checkpoint is not None else 0))


def end_summary(allotment: Allotment, blamed: FailureBlamed | None, reason: str) -> str:
    """The end of the attempt in one line: that of the rank which is blamed, where one is known, and whom the failure is blamed on."""
    if blamed is None:
        return reason
    end = _end_of(allotment, blamed.rank)
    line = reason if end is None else end_line(end.rank, end.node_id, end.exit_code, end.signal, end.text)
    return f"{line}. Blamed on {_culprit(blamed, end)}"


def _end_of(allotment: Allotment, rank: int | None) -> EndedRank | None:
    """Returns the exit of the blamed rank, if the attempt ended by exits of its ranks alone; else None."""
    found = allotment.evidence
    if found.hung is not None or found.lost_node is not None or found.launch_error:
        return None
    return next((e for e in found.ends if e.rank == rank), None)


def _culprit(verdict: FailureBlamed, end: EndedRank | None) -> str:
    """Whom a failure is blamed on, in a few words, without what the line of that rank's end says already."""
    category = str(verdict.category).lower().replace("_", " ")
    on_device = verdict.device_id and (end is None or verdict.category is FailureCategory.DEVICE)
    named = [f"device {verdict.device_id}" if on_device else ""]
    named.append(f"node {verdict.node_id}" if verdict.node_id and (end is None or end.node_id != verdict.node_id) else "")
    named.append(f"rank {verdict.rank}" if verdict.rank is not None and end is None else "")
    named.append(f"shard {verdict.shard}" if verdict.shard else "")
    where = ", ".join(n for n in named if n)
    summary = "" if end is not None and verdict.rule.startswith(RAISED) else f": {verdict.summary.rstrip('.')}"
    return f"{category}{f' ({where})' if where else ''}{summary}"
