"""Claims: the gangs for which others were asked to leave start as soon as all their devices are free.

Holds: a claim ends with its gang's start, or when it can no longer be kept: its gang is gone, one of its nodes is closed, or another gang
holds its devices though all who were asked have left. So finished or lost gangs never keep devices from others. A start passes no quota:
where others of the team have yet to leave, the claim waits for them; where none leaves and its quota refuses still, it is over. So is
that of a gang which only starts again, at once: no gang was asked to leave for it.
Never: waits for itself: a gang that moves keeps its claim while it runs elsewhere.
"""

from trainhouse.scheduler.core.cycle.apply_actions import apply
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Action, Claim, Start, Unhold, Waiting


def start_claimed(book: Book, pool: str, now_ms: int) -> list[Action]:
    """Starts the gangs of a pool whose claimed devices are free, and ends claims that cannot be kept."""
    actions: list[Action] = []
    for job_id in sorted(book.claims):
        claim = book.claims[job_id]
        waiting, running = book.lanes.get(job_id), book.running.get(job_id)
        owner = waiting or (running.job if running is not None else None)
        if owner is not None and owner.shape.pool != pool:
            continue
        if waiting is not None and waiting.not_before_ms <= now_ms and book.cluster.all_free(claim.placement):
            # One that was moved or resized had devices when its claim was weighed: it is not left without any by a quota that fell.
            refused = job_id not in claim.victims and (book.full(waiting) or _over_quota(book, waiting, claim))
            if refused and claim.victims and _somebody_leaves(book, pool):
                continue
            action: Action = Unhold(job_id) if refused else Start(job_id, claim.placement)
        elif owner is None or not _hopeful(book, claim):
            action = Unhold(job_id)
        else:
            continue
        apply(book, action, now_ms)
        actions.append(action)
    return actions


def _over_quota(book: Book, job: Waiting, claim: Claim) -> bool:
    amounts = book.amounts(job.shape, claim.placement)
    return book.usage.quotas(job.shape.pool).may_start(job.team, amounts) is not None


def _somebody_leaves(book: Book, pool: str) -> bool:
    return any(r.leaving_ms is not None and r.job.shape.pool == pool for r in book.running.values())


def _hopeful(book: Book, claim: Claim) -> bool:
    """Whether the devices can still come: every node is open, and those who were asked have not all left."""
    slots = book.cluster.layout.slots
    for part in claim.placement:
        node = slots[part.node]
        if node is None or not node.open:
            return False
    leaving = (*claim.victims, claim.job_id)
    if any((r := book.running.get(v)) is not None and r.leaving_ms is not None for v in leaving):
        return True
    return book.cluster.all_free(claim.placement)
