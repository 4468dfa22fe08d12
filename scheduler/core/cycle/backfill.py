"""Reservation of a gang that does not fit: its latest start time and its nodes, which backfill respects.

The running gangs' expected ends are gone through in order on a trial cluster until the gang fits: the shadow time of EASY backfilling
(Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995), for several gangs one after the other.

Holds: with run times that are not exceeded, nodes that stay, and no job ahead that was not ahead before, a gang starts at its promised time
or earlier. Promises made ahead keep their nodes, from their start to their expected end. Where nothing is known of a running gang it is
guessed to be short, then to run as long again, by doubling, so that a large gang is never passed for ever; a waiting one of which nothing
is known counts as never ending, so it touches no promise.
Never: changes the book.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import WHOLE, Placement, ranks_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Reservation, Running, Waiting


def nodes_of(placement: Placement) -> int:
    """The mask of a placement's nodes."""
    mask = 0
    for part in placement:
        mask |= 1 << part.node
    return mask


def held_until_ms(book: Book, reservation: Reservation) -> int | None:
    """Returns the expected end of a reserved gang, if it starts on time; None: not known."""
    job = book.lanes.get(reservation.job_id)
    return None if job is None or job.run_ms is None else reservation.start_ms + max(1, job.run_ms)


def earliest(book: Book, job: Waiting, packing: Packing, ahead: list[Reservation], now_ms: int) -> Reservation | None:
    """The first time at which a waiting gang fits (an elastic one at its least size); None: not with the ends that are known."""
    pool, wanted = job.shape.pool, job.shape.least_ranks
    until = [(held_until_ms(book, a), a) for a in ahead]
    # So many devices must come free before it is worth a try.
    missing = wanted - book.cluster.free(pool) if job.shape.milli == WHOLE else 0
    trial = book.cluster.fork()
    for end, leaving in _departures(book, pool, [end for end, _ in until if end is not None], now_ms):
        for done in leaving:
            trial.give(done.placement, done.job.shape)
            missing -= ranks_of(done.placement)
        if missing > 0:
            continue
        placement = place(trial, job.shape, packing, ranks=wanted, avoid=_kept(until, end, job.run_ms) if until else 0)
        if placement is not None:
            return Reservation(job.job_id, end, nodes_of(placement), now_ms)
    return None


def _departures(book: Book, pool: str, more_ms: list[int], now_ms: int) -> Iterator[tuple[int, list[Running]]]:
    """The expected ends of running gangs from now on, in order, each with the gangs that end then; `more_ms`: times without any."""
    ends = book.ends_of(pool).after(now_ms, book.running, [(end, "") for end in more_ms])
    for end, group in groupby(ends, key=itemgetter(0)):
        yield end, [book.running[job_id] for _, job_id in group if job_id]


def _kept(until: list[tuple[int | None, Reservation]], start_ms: int, run_ms: int | None) -> int:
    """The nodes that promises ahead need at a time when a gang would run from `start_ms` for `run_ms`."""
    mask = 0
    for end, ahead in until:
        before = run_ms is not None and start_ms + max(1, run_ms) <= ahead.start_ms
        after = end is not None and start_ms >= end
        if not before and not after:
            mask |= ahead.nodes
    return mask
