"""Explanations from the scheduler's state: the live one, or one that was folded up to a moment of the past."""

from collections.abc import Iterator

from trainhouse.events.model.explanation import JobExplained
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.explain.answer import Answer
from trainhouse.scheduler.core.explain.node_reasons import NodeAnswer, nodes_asked
from trainhouse.scheduler.core.explain.waiting import explain_pool
from trainhouse.scheduler.core.state.state import ScheduleState


def answers(state: ScheduleState, now_ms: int) -> Iterator[Answer]:
    """Of every waiting job of the partition, pool by pool, in the order in which they are served.

    Works on a fork that is made at once: what comes may be gone through later, and in another thread, while the state goes on.
    """
    frozen = state.frozen.reason if state.frozen is not None else ""
    return _each(state.book.fork(), now_ms, frozen)


def _each(book: Book, now_ms: int, frozen: str) -> Iterator[Answer]:
    for pool in book.lanes.pools():
        yield from explain_pool(book, pool, now_ms, frozen)


def explain_job(state: ScheduleState, job_id: str, now_ms: int) -> JobExplained | None:
    """Of one job; None: it does not wait."""
    waiting = state.book.lanes.get(job_id)
    if waiting is None:
        return None
    frozen = state.frozen.reason if state.frozen is not None else ""
    return next(a.build() for a in explain_pool(state.book, waiting.shape.pool, now_ms, frozen) if a.job_id == job_id)


def explain_nodes(state: ScheduleState, job_id: str) -> list[NodeAnswer]:
    """Returns the reason of each node of its pool for one job; empty: it does not wait."""
    waiting = state.book.lanes.get(job_id)
    return [] if waiting is None else nodes_asked(state.book, waiting.shape)
