"""A plan that frees devices, as actions: claims first, then the evictions that they need.

Holds: every gang that is asked to leave is in the claim that its devices go to.
Never: decides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainhouse.scheduler.core.cluster.shape import Placement
from trainhouse.scheduler.core.cycle.apply_actions import apply
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.shrink import Resized
from trainhouse.scheduler.core.cycle.preemption.victims import Victim
from trainhouse.scheduler.core.cycle.what_if_cluster import occupants
from trainhouse.scheduler.core.queue.entries import Action, Claim, Evict, Eviction, Hold, Running, Unreserve, Waiting


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan that lets one gang start: its placement, the gangs stopped (and by what right) and shrunk for it, the reservations it breaks."""

    job: Waiting
    placement: Placement
    stopped: tuple[tuple[Victim, Eviction], ...]
    shrunk: tuple[Resized, ...]
    broken: tuple[str, ...]


def claim_for(job_id: str, placement: Placement, going: Iterable[Running], now_ms: int) -> Claim:
    """A claim, with those of `going` that are on its devices now."""
    return Claim(job_id, placement, tuple(sorted({r.job.job_id for r in occupants(placement, going)})), now_ms)


def no_promise(book: Book, job_ids: Iterable[str]) -> list[Action]:
    """Ends the promised starts of these jobs, where they have one."""
    return [Unreserve(i) for i in sorted(set(job_ids)) if i in book.reservations]


def actions_of(book: Book, plan: Plan, leavers: Sequence[Running], deadline_ms: int, now_ms: int) -> list[Action]:
    """The plan as actions. `leavers`: gangs that leave already, on whose devices the plan may count."""
    job = plan.job
    going = [*leavers, *(v.running for v, _ in plan.stopped), *(r.victim.running for r in plan.shrunk)]
    out = no_promise(book, (*plan.broken, job.job_id))
    out.append(Hold(claim_for(job.job_id, plan.placement, going, now_ms)))
    out.extend(Hold(claim_for(r.victim.job_id, r.placement, going, now_ms)) for r in plan.shrunk)
    for each in plan.shrunk:
        running = each.victim.running
        reason = f"shrinks from {running.ranks} to {each.ranks} ranks (its minimum is {running.job.shape.min_ranks}) for {job.job_id}"
        out.append(Evict(each.victim.job_id, Eviction.RESIZED, deadline_ms, job.job_id, each.ranks, reason))
    out.extend(Evict(v.job_id, why, deadline_ms, job.job_id, 0, _reason(job, v, why)) for v, why in plan.stopped)
    return out


def _reason(job: Waiting, victim: Victim, why: Eviction) -> str:
    lost = f"{victim.lost // 1000} device-seconds are lost"
    if why is Eviction.RECLAIMED:
        return f"team {job.team} takes back guaranteed devices for {job.job_id}; {lost}"
    return f"{job.job_id} (priority {job.priority}) comes before it (priority {victim.running.job.priority}); {lost}"


def carry_out(book: Book, actions: Sequence[Action], now_ms: int) -> list[Action]:
    """Applies actions to the book, and gives them back as a list."""
    for action in actions:
        apply(book, action, now_ms)
    return list(actions)
