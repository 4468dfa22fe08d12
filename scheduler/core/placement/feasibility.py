"""Gangs that their pool could never hold: refused early, with the numbers.

Holds: a pool that got a new device within POOL_SETTLES_MS, or has none, is still being built: no job is refused for what it has. Lost
and closed nodes count as the pool's, forgotten ones do not. A team's limit refuses at submission only, since a policy may change while a
job waits.
"""

from typing import Final

from trainhouse.events.model.phases import Rejected
from trainhouse.scheduler.core.cluster.describe import needs
from trainhouse.scheduler.core.cluster.shape import Shape
from trainhouse.scheduler.core.cluster.unschedulable import most_ranks
from trainhouse.scheduler.core.cycle.device_variants import variants
from trainhouse.scheduler.core.queue.quotas import QuotaRefusal
from trainhouse.scheduler.core.queue.resources import amounts_least
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Job

POOL_SETTLES_MS: Final = 15_000


def refuse_at_submission(draft: Draft, job: Job) -> bool:
    """Rejects a job that came just now, if its team's limit or its pool could never allow it; True if it did."""
    if draft.state.book.usage.quotas(job.pool).tree.refuses(job.spec.team):
        draft.move(job.job_id, Rejected(), _unlisted(job))
        return True
    shape = _shape(draft, job)
    asked = amounts_least(shape)
    refusal = draft.state.book.usage.quotas(job.pool).limited(job.spec.team, asked) or _limited_on_each_type(draft, job, shape)
    if refusal is not None:
        advice = "Ask for fewer devices, or have the limit raised, and submit it under a new id"
        draft.move(job.job_id, Rejected(), f"the gang can never start: {refusal.text()}. {advice}")
        return True
    return _refuse(draft, job, shape, _most_ranks(draft, shape)) if settled(draft, job.pool) else False


def _unlisted(job: Job) -> str:
    show, apply = f"trainhouse policy show {job.pool} > FILE", f"trainhouse policy apply {job.pool} FILE"
    return (
        f"team {job.spec.team} has no quota in pool {job.pool}, and the pool's policy refuses such teams (unlisted_teams: refused). "
        f"List the team under `teams` (`{show}`, then `{apply}`), and submit the job under a new id"
    )


def _limited_on_each_type(draft: Draft, job: Job, shape: Shape) -> QuotaRefusal | None:
    """The limit of one type that stops a gang of any type, where no other type has so many devices; None: some type does."""
    quotas, first_refusal = draft.state.book.usage.quotas(job.pool), None
    if not quotas.tree.types or not settled(draft, job.pool):
        return None
    for variant in variants(draft.state.book, shape):
        if _most_ranks(draft, variant) >= shape.least_ranks:
            refusal = quotas.limited(job.spec.team, amounts_least(variant))
            if refusal is None:
                return None
            first_refusal = first_refusal or refusal
    return first_refusal


def judge_waiting(draft: Draft, pool: str) -> None:
    """Rejects all waiting jobs of a pool that has settled, which it could never hold."""
    most: dict[Shape, int] = {}
    for entry in draft.state.book.lanes.jobs(pool):
        shape = entry.shape
        if shape not in most:
            most[shape] = _most_ranks(draft, shape)
        _refuse(draft, draft.state.job(entry.job_id), shape, most[shape])


def settled(draft: Draft, pool: str) -> bool:
    """Whether a pool has had its nodes for a while."""
    grown_at_ms = draft.state.pool(pool).grown_at_ms
    if pool not in draft.state.nodes_of_pool:
        return False
    return grown_at_ms is not None and draft.now_ms - grown_at_ms >= POOL_SETTLES_MS


def _shape(draft: Draft, job: Job) -> Shape:
    entry = draft.state.book.lanes.get(job.job_id)
    assert entry is not None, f"job {job.job_id} waits, and the book does not know it"
    return entry.shape


def _most_ranks(draft: Draft, shape: Shape) -> int:
    book = draft.state.book
    return most_ranks(book.cluster, shape, book.policy(shape.pool).packing)


def _refuse(draft: Draft, job: Job, shape: Shape, most: int) -> bool:
    if most >= shape.least_ranks:
        return False
    draft.move(job.job_id, Rejected(), _impossible(draft, shape, most))
    return True


def _impossible(draft: Draft, shape: Shape, most: int) -> str:
    offered: dict[str, int] = {}
    for node in draft.state.in_pool(shape.pool):
        for device in node.offered:
            offered[device.type] = offered.get(device.type, 0) + 1
    has = ", ".join(f"{count} of type {t}" for t, count in sorted(offered.items())) or "no devices"
    return (
        f"the gang can never be held: it needs {needs(shape)}; pool {shape.pool} has {has} in all, on which {most} such ranks fit"
        f"{_levels(draft, shape)}. Ask for fewer or other devices, or add nodes, and submit it under a new id"
    )


def _levels(draft: Draft, shape: Shape) -> str:
    require = shape.require
    known = draft.state.book.cluster.levels(shape.pool)
    if not require or require in known:
        return ""
    return f"; no node of it tells a level {require} (its levels: {', '.join(sorted(known))})"
