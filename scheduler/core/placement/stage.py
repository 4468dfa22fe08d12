"""The placement stage of a tick: one cycle of the scheduler on a fork of the book, and its actions as decisions.

Holds: runs at ticks and nowhere else, so where a batch begins and ends changes nothing; a pool in which nothing is new costs a look at its
mark. A cycle that raises stops placement on this partition, and nothing else: it is tried again under other code, after a person's
change, or after RETRY_FROZEN_MS.
"""

from collections.abc import Callable
from typing import Final

from trainhouse.events.model.decisions import PlacementResumed
from trainhouse.events.model.pool import CycleRan, PoolJudged
from trainhouse.events.wire.journal import MAX_REASON_CHARS, PlacementFrozen
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.placement.cycle_decisions import carry_out
from trainhouse.scheduler.core.placement.feasibility import judge_waiting, settled
from trainhouse.scheduler.core.placement.wait_status import publish_wait_reason
from trainhouse.scheduler.core.queue.entries import Action
from trainhouse.scheduler.core.state.draft import Draft

RETRY_FROZEN_MS: Final = 60_000

Cycle = Callable[[Book, int], list[Action]]


def place_waiting(draft: Draft, cycle: Cycle, decide_version: int) -> None:
    """Does what can be done now."""
    frozen = draft.state.frozen
    if frozen is not None and not (
        frozen.again or frozen.decide_version != decide_version or draft.now_ms - frozen.at_ms >= RETRY_FROZEN_MS
    ):
        return
    try:
        _judge(draft)
        _run(draft, cycle)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        draft.emit(PlacementFrozen(reason=reason[:MAX_REASON_CHARS], decide_version=decide_version))
        return
    if frozen is not None:
        draft.emit(PlacementResumed(decide_version=decide_version))


def _judge(draft: Draft) -> None:
    """Refuses what can never be, once a pool has settled after it grew."""
    for name in sorted(n for n, p in draft.state.pools.items() if not p.judged):
        if settled(draft, name):
            judge_waiting(draft, name)
            draft.emit(PoolJudged(pool=draft.state.pool(name).name))


def _run(draft: Draft, cycle: Cycle) -> None:
    """One cycle. Its decisions mark pools as changed again; that they were looked at comes last."""
    book, now_ms = draft.state.book, draft.now_ms
    due = [pool for pool in book.pools() if book.due(pool, now_ms)]
    if not due:
        return
    actions = cycle(book.fork(), now_ms)
    for action in actions:
        carry_out(draft, action)
    for pool in due:
        draft.emit(CycleRan(pool=draft.state.pool(pool).name))
        publish_wait_reason(draft, pool)
