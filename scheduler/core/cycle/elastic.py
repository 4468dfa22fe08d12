"""Growth of elastic gangs into devices that no job waits for.

A gang restarts at a larger size when it has run long enough, no waiting gang that could ever run wants devices of its types, and the run
time saved exceeds what the restart costs. Run times scale linearly: twice the ranks, half the time; the true gain is at most that.

Holds: growing never takes a device from a gang that waits, from a claim or from a promised start; a gang that grows has its new devices
claimed before it leaves the old ones, so it cannot end with fewer. A gang that shrank grows only when no job waits any more.
Never: shrinks (`shrink` does, for a gang that waits).
"""

from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement, Shape, ranks_of
from trainhouse.scheduler.core.cluster.unschedulable import most_ranks
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.plans import carry_out, claim_for
from trainhouse.scheduler.core.cycle.preemption.victims import milliseconds
from trainhouse.scheduler.core.cycle.what_if_cluster import Trial, kept_for_others, pledged
from trainhouse.scheduler.core.queue.entries import Action, Evict, Eviction, Hold, Running

MAX_GROWN = 8
"""Gangs that grow in one cycle at most: each takes a checkpoint and a restart."""


def plan_elastic(book: Book, pool: str, now_ms: int) -> list[Action]:
    """Restarts of running elastic gangs at larger sizes; the book is left as if they were applied."""
    policy = book.policy(pool)
    if not policy.elastic.enabled:
        return []
    able = [r for i in sorted(book.running) if _may_grow(book, r := book.running[i], pool, now_ms)]
    if not able or not book.cluster.free(pool):
        return []
    wanted = _wanted(book, pool, now_ms)
    if wanted is None:
        return []
    actions: list[Action] = []
    deadline_ms = now_ms + milliseconds(policy.preemption.checkpoint_deadline_s)
    for running in sorted(able, key=lambda r: (r.job.priority, r.job.number, r.job.job_id)):
        if wanted & _types(book, running.job.shape):
            continue
        placement = _grown(book, pool, running, now_ms)
        if placement is not None:
            actions.extend(carry_out(book, _actions(running, placement, deadline_ms, now_ms), now_ms))
            if len(actions) >= 2 * MAX_GROWN:
                break
    return actions


def _may_grow(book: Book, running: Running, pool: str, now_ms: int) -> bool:
    job, shape = running.job, running.job.shape
    if shape.pool != pool or not shape.elastic or not shape.sizes(running.ranks + 1, shape.ranks):
        return False
    if running.leaving_ms is not None or running.finishing or not job.preemptible or job.job_id in book.claims:
        return False
    return now_ms - running.started_ms >= milliseconds(book.policy(pool).elastic.grow_after_s)


def _types(book: Book, shape: Shape) -> frozenset[str]:
    return frozenset(need.device_type for block in book.cluster.layout.plan(shape).needs for need in block)


def _wanted(book: Book, pool: str, now_ms: int) -> frozenset[str] | None:
    """Device types that waiting gangs want; None: all that there are.

    One that could never run wants nothing, and one beyond its project's limit none as yet: neither may block others.
    """
    known = frozenset(device_type for p, device_type in book.cluster.bays if p == pool)
    packing, types = book.policy(pool).packing, set[str]()
    lanes = book.lanes.of(pool)
    for _, _, _, key in lanes.heads:
        shape = key.shape
        if _types(book, shape) <= types or most_ranks(book.cluster, shape, packing) < shape.least_ranks:
            continue
        if any(w.job_id not in book.claims and w.not_before_ms <= now_ms and not book.full(w) for w in lanes.walk(key)):
            types |= _types(book, shape)
            if types >= known:
                return None
    return frozenset(types)


def _grown(book: Book, pool: str, running: Running, now_ms: int) -> Placement | None:
    """The largest size that fits now beside all others, its own devices included, if it is worth a restart; else None."""
    shape, trial = running.job.shape, Trial(book, pool, later=False)
    trial.gone(running)
    avoid, _ = kept_for_others(book, running.job, now_ms, now_ms)
    for job_id in sorted(book.reservations):
        avoid |= book.reservations[job_id].nodes
    most = shape.ranks
    while sizes := shape.sizes(running.ranks + 1, most):
        placement = trial.largest(shape, sizes[0], most, avoid)
        if placement is None or not _worth(book, pool, running, placement, now_ms):
            return None
        if not _over_quota(book, pool, running, placement):
            return placement
        most = (running.ranks + ranks_of(placement)) // 2
    return None


def _worth(book: Book, pool: str, running: Running, placement: Placement, now_ms: int) -> bool:
    """Whether the run time that is saved exceeds what is lost: the work since the last save, and the restart. Yes, if it is not known."""
    if running.ends_ms is None:
        return True
    left_ms = max(0, running.ends_ms - now_ms)
    ranks = ranks_of(placement)
    restart_ms = milliseconds(book.policy(pool).preemption.restart_cost_s)
    return left_ms - left_ms * running.ranks // ranks > max(0, now_ms - running.saved_ms) + restart_ms


def _over_quota(book: Book, pool: str, running: Running, placement: Placement) -> bool:
    quotas, job = pledged(book, pool), running.job
    if not quotas.tree.types:
        return False
    quotas.add(job.team, book.amounts(job.shape, running.placement), -1)
    return quotas.may_start(job.team, book.amounts(job.shape, placement)) is not None


def _actions(running: Running, placement: Placement, deadline_ms: int, now_ms: int) -> list[Action]:
    job, ranks = running.job, ranks_of(placement)
    reason = f"grows from {running.ranks} to {ranks} ranks: nobody waits for the devices"
    assert all(part.milli >= WHOLE for part in placement), f"{job.job_id} is elastic and shares a device"
    return [
        Hold(claim_for(job.job_id, placement, [running], now_ms)),
        Evict(job.job_id, Eviction.RESIZED, deadline_ms, job.job_id, ranks, reason),
    ]
