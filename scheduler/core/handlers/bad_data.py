"""Handling of shards that ranks cannot read, and of jobs with more bad samples than they allow.

Holds: a report counts for the present attempt alone, and of the version that the job's spec names; of one attempt a shard is reported to
intake once, by whichever rank, and a bounded number of shards. Of a version that a job reads by a grant they count for the job alone: what
ranks report is not proven, and must not take the version from its owner. A job with too many bad samples is sent to review as a person
would send it, also below the level: its ranks end, and would end again after each restart. There nothing counts what a person accepts.
Never: decides whether a shard is in quarantine; intake does.
"""

from typing import Final

from trainhouse.events import EventId, JobReviewed, ReviewAction
from trainhouse.events.model.bad_shard import BadShardFound, BadShardNoted, TooManyBadSamples
from trainhouse.events.model.ids import TRAINHOUSE
from trainhouse.scheduler.core.handlers.reports import current
from trainhouse.scheduler.core.handlers.review import BAD_SAMPLES_SINCE, leaves_for, send
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job

MOST_SHARDS: Final = 64
"""Shards of one attempt that are reported to intake."""
OWNERS_SINCE: Final = 19
"""Level from which reports of shards of another project's version are taken."""
_SHOWN: Final = 4
_SHORT_CHARS: Final = 12
_LAST_CHARS: Final = 300


def on_bad_shard(draft: Draft, report: BadShardFound) -> None:
    """Takes the first report of a shard in this attempt."""
    job = current(draft.state, report)
    if job is None or draft.level < BAD_SAMPLES_SINCE or _version(job) != f"{report.dataset}@sha256:{report.sha256}":
        return
    if report.shard in job.bad_shards or report.shard in job.quarantined or len(job.bad_shards) >= MOST_SHARDS:
        return
    owner = _owner(job)
    if owner is None or draft.level >= OWNERS_SINCE:
        draft.emit(BadShardNoted(report=report, owner=owner))


def on_too_many(draft: Draft, report: TooManyBadSamples) -> None:
    """Sends the job to review, also where its gang makes way for another; not if it leaves for a review or its end already, or is lost."""
    job = current(draft.state, report)
    if job is None or leaves_for(job) is not None:
        return
    reason = f"{_reason(job, report)}; {_way_out(draft, job)}"
    draft.emit(
        JobReviewed(
            job_id=job.job_id,
            action=ReviewAction.SEND,
            event_id=EventId(f"{job.job_id}:bad-samples:{job.epoch}"),
            pool=job.pool,
            user=TRAINHOUSE,
            reason=reason,
            at_ms=draft.now_ms,
            bad_samples=report.bad if draft.level >= BAD_SAMPLES_SINCE else None,
        )
    )
    send(draft, draft.state.job(job.job_id), reason)


def _version(job: Job) -> str | None:
    return None if job.spec.data is None else job.spec.data.dataset


def _owner(job: Job) -> str | None:
    """The project whose version the job reads by a grant; None: it is its own."""
    return None if job.spec.data is None else job.spec.data.owner


def _reason(job: Job, report: TooManyBadSamples) -> str:
    version = _version(job) or "its data"
    shards = (*job.bad_shards, *job.quarantined)
    listed = ", ".join(f"{shard[:_SHORT_CHARS]}…" for shard in shards[:_SHOWN]) + (" …" if len(shards) > _SHOWN else "")
    of_shards = f" Shards: {listed}." if shards else ""
    last = f" The last one: {report.last.partition(chr(10))[0].partition('; ')[0][:_LAST_CHARS]}." if report.last else ""
    own = _version(job) and _owner(job) is None
    look = f"`trainhouse data quarantine list {version}` has the evidence" if own else "its log has the reasons"
    return (
        f"{report.bad} samples of {version} could not be read or decoded by step {report.step}, more than data.max_bad allows, "
        f"{report.allowed} with {report.samples} samples.{of_shards}{last} {look}"
    )


def _way_out(draft: Draft, job: Job) -> str:
    if draft.level < BAD_SAMPLES_SINCE:
        return "an update is not finished: run `trainhouse upgrade finish --reason TEXT`, then let it go on, and it counts what you accept"
    rebuild = f"`trainhouse data quarantine rebuild {_version(job)} --from PATH` mends shards" if _version(job) else "mend its data"
    if owner := _owner(job):
        rebuild = f"project {owner}, which owns it, looks at it by `trainhouse data verify {_version(job)}` and mends shards"
    return (
        f"{rebuild}; then `trainhouse review {job.job_id} --go-on` accepts those up to now, with `--max-bad SHARE` allows more from "
        "then on, and `--cancel` ends the job"
    )
