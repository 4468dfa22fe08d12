"""The scheduler: from the book to actions. The machine of the journal gives it a fork, the simulator its own book.

In each pool that changed: gangs whose claimed devices are free start; waiting gangs start, or get a promised start, in the order of the
policy; then others may be asked to leave for those who still wait; then elastic gangs grow; then gangs move.

Holds: the same book and time give the same actions; afterwards the book is as if they were applied; a second look at the same time finds
nothing more to start, unless shares make the order, or the first one moved a promise because a job outran its estimate.
Never: reads a clock; looks at a pool where nothing changed and no time has passed.
"""

from collections.abc import Iterator

from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.claims import start_claimed
from trainhouse.scheduler.core.cycle.defragment import plan_moves
from trainhouse.scheduler.core.cycle.elastic import plan_elastic
from trainhouse.scheduler.core.cycle.preemption.preempt import plan_preemption
from trainhouse.scheduler.core.cycle.queue_pass import place_waiting
from trainhouse.scheduler.core.queue.entries import Action, Waiting
from trainhouse.scheduler.core.queue.order import in_order


def run_cycle(book: Book, now_ms: int) -> list[Action]:
    """One cycle over all pools; `now_ms` never goes back."""
    actions: list[Action] = []
    for pool in book.pools():
        if book.due(pool, now_ms):
            actions.extend(_in_pool(book, pool, now_ms))
            book.marks.settle(pool, now_ms)
    return actions


def _in_pool(book: Book, pool: str, now_ms: int) -> list[Action]:
    actions = start_claimed(book, pool, now_ms) if book.claims else []
    actions.extend(place_waiting(book, pool, now_ms))
    policy = book.policy(pool)
    elastic = policy.elastic.enabled and book.elastic.get(pool, 0) > 0
    stops, moves = policy.preemption.enabled or elastic, policy.defragmentation.enabled
    waiting = (stops or moves) and bool(book.lanes.of(pool).heads)
    if waiting and stops:
        actions.extend(plan_preemption(book, pool, _unplaced(book, pool, now_ms), now_ms))
    if elastic:
        actions.extend(plan_elastic(book, pool, now_ms))
    if waiting and moves:
        actions.extend(plan_moves(book, pool, _unplaced(book, pool, now_ms), now_ms))
    return actions


def _unplaced(book: Book, pool: str, now_ms: int) -> Iterator[Waiting]:
    """Waiting gangs in order, one of each lane: where it could not be helped, neither can those behind it with the same needs and rank."""
    turn = in_order(book.lanes, book.usage, pool, book.policy(pool), now_ms)
    while (job := turn.head()) is not None:
        if job.job_id in book.claims:
            turn.skip()
            continue
        yield job
        if job.job_id in book.claims:
            turn.skip()
        else:
            turn.drop_lane()
