"""Wait reason in the status of a pool's first waiting job: as a sentence, at once and then at a bounded rate.

Holds: given to the first waiting job by priority and submission; the whole answer for every job is `explain`'s.
"""

from typing import Final

from trainhouse.events.model.phases import Pending
from trainhouse.scheduler.core.cluster.shape import ANY
from trainhouse.scheduler.core.explain.diagnosis import by_project
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job

PUBLISH_EVERY_MS: Final = 5_000


def publish_wait_reason(draft: Draft, pool: str) -> None:
    """Publishes the sentence if it is new, at once for a job without one, else at most once in PUBLISH_EVERY_MS."""
    heads = draft.state.book.lanes.of(pool).heads
    if not heads:
        return
    job = draft.state.job(min((lane.priority, number, job_id) for _, number, job_id, lane in heads)[2])
    if not isinstance(job.phase, Pending) or job.phase.not_before_ms > draft.now_ms:
        return
    reason = _reason(draft, job)
    new = job.attempt == 0 and job.status_seq <= 1
    if job.reason != reason and (new or draft.now_ms - job.status_at_ms >= PUBLISH_EVERY_MS):
        draft.move(job.job_id, job.phase, reason)


def _reason(draft: Draft, job: Job) -> str:
    if not draft.state.nodes_of_pool.get(job.pool):
        return f"waiting: pool {job.pool} has no node yet"
    claim = draft.state.claims.get(job.job_id)
    if claim is not None and not claim.victims:
        return "waiting for its own devices, on which it starts again"
    if claim is not None:
        return f"waiting for {len(claim.victims)} jobs to save and leave its devices"
    entry = draft.state.book.lanes.get(job.job_id)
    if entry is not None and draft.state.book.full(entry):
        return f"waiting: {by_project(draft.state.book, entry).text}"
    wanted, cluster = job.spec.resources.device_type, draft.state.book.cluster
    ranks = job.spec.gang.least_ranks
    any_type = wanted == ANY or bool(job.spec.gang.roles)
    types = cluster.layout.types(job.pool) if any_type else (wanted,)
    free = max((cluster.free(job.pool, t) for t in types), default=0)
    what = "devices" if any_type else f"devices of type {wanted}"
    beside = ", as the spec asks for them," if free >= ranks else ""
    return f"waiting for {ranks} free {what}{beside} in pool {job.pool}; free now: {free}"
