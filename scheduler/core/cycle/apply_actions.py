"""Effect of an action on the book, devices included: the same for the cycle that chose it, a trial, and the simulator.

Holds: an action is applied once. After a start its job runs, and its claim and held start are over.
Never: decides.
"""

from dataclasses import replace

from trainhouse.scheduler.core.cluster.shape import Placement, ranks_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.release_forecast import expected_end_ms
from trainhouse.scheduler.core.queue.entries import Action, Evict, Eviction, Hold, Reserve, Running, Start, Unhold, Unreserve


def apply(book: Book, action: Action, now_ms: int) -> None:
    """Changes the book as the action says."""
    match action:
        case Start(job_id, placement):
            _start(book, job_id, placement, now_ms)
        case Evict():
            _evict(book, action, now_ms)
        case Hold(claim):
            book.hold(claim)
        case Unhold(job_id):
            book.unhold(job_id)
        case Reserve(reservation):
            book.reserve(reservation)
        case Unreserve(job_id):
            book.unreserve(job_id)


def _start(book: Book, job_id: str, placement: Placement, now_ms: int) -> None:
    job = book.lanes.get(job_id)
    assert job is not None, f"{job_id} is to start and does not wait"
    if job_id in book.claims:
        book.unhold(job_id)
    book.unreserve(job_id)
    book.cluster.take(placement, job.shape)
    book.put_running(Running(job, placement, now_ms, expected_end_ms(job, ranks_of(placement), now_ms), now_ms), now_ms)


def _evict(book: Book, action: Evict, now_ms: int) -> None:
    running = book.running[action.job_id]
    book.put_running(replace(running, leaving_ms=action.deadline_ms), now_ms)
    if action.why is Eviction.MOVED:
        book.moved(now_ms)
