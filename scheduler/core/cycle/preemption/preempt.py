"""Preemption as a transaction: others are asked to leave only if the whole waiting gang is then placed.

For each gang that found no place, in order: elastic gangs are shrunk if that is enough; else gangs that run on borrowed devices are asked
to leave, by least lost work; else any that it outranks. The devices are claimed for it in the same cycle: evictions serve no other gang.

Holds: no eviction without a claim that its devices are part of; a protected gang is never asked; at most `max_victims` gangs for one;
no gang can win back what was taken from it here by the same rules (`standing` says why). A plan that fails changes nothing.
Never: stops part of a gang.
"""

from collections.abc import Iterable

from trainhouse.events.model.policy import Blocking, Order
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.preemption.plans import actions_of, carry_out
from trainhouse.scheduler.core.cycle.preemption.preemption_order import by_score, shorter_waits
from trainhouse.scheduler.core.cycle.preemption.preemption_planner import PreemptionPlanner
from trainhouse.scheduler.core.cycle.preemption.victims import milliseconds
from trainhouse.scheduler.core.queue.entries import Action, Hold, Waiting

MAX_SEARCHES = 16
"""Gangs for which victims are looked for in one cycle at most, so that a cycle stays short; those behind have their turn in a later one."""


def plan_preemption(book: Book, pool: str, candidates: Iterable[Waiting], now_ms: int) -> list[Action]:
    """Evictions and claims for waiting gangs that did not fit, in order; the book is left as if they were applied.

    Under `strict` blocking the first gang that cannot be helped ends it, as it ends the pass of starts.
    """
    policy = book.policy(pool)
    if not policy.preemption.enabled and not policy.elastic.enabled:
        return []
    if not (book.elastic.get(pool, 0) or book.usage.quotas(pool).tree.types) and not _ranked(book, pool, now_ms):
        return []
    deadline_ms = now_ms + milliseconds(policy.preemption.checkpoint_deadline_s)
    actions: list[Action] = []
    planner: PreemptionPlanner | None = None
    failed: set[tuple[object, ...]] = set()
    for job in candidates:
        # What was found to be impossible stays so while others take devices: gangs with the same needs and rank are not tried again.
        key = (job.team, job.priority, job.shape, job.run_ms)
        if job.job_id in book.claims or job.not_before_ms > now_ms or key in failed or book.full(job):
            continue
        planner = planner or PreemptionPlanner(book, pool, now_ms)
        if planner.idle or planner.searches >= MAX_SEARCHES:
            break
        plan = planner.plan(job)
        if plan is not None:
            done = carry_out(book, actions_of(book, plan, planner.leavers, deadline_ms, now_ms), now_ms)
            planner.accept(plan, (a.claim for a in done if isinstance(a, Hold)))
            actions.extend(done)
        elif policy.blocking is Blocking.STRICT:
            break
        else:
            failed.add(key)
    return actions


def _ranked(book: Book, pool: str, now_ms: int) -> bool:
    """Whether any waiting gang could outrank any running one: most looks end here, where priorities are alike and no score may lead."""
    policy = book.policy(pool)
    if policy.order is Order.REMAINING:
        return shorter_waits(book, pool, now_ms)
    if by_score(book, pool, now_ms):
        return True
    best = min((head[3].priority for head in book.lanes.of(pool).heads), default=0)
    least = best + policy.preemption.margin
    return any(priority >= least and priority > best for priority in book.priorities.get(pool, ()))
