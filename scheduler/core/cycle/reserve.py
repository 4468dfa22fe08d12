"""When a gang that does not fit can start at the latest, and on which nodes: the promise that backfill keeps.

The running gangs' expected ends are gone through in order on a trial cluster until the gang fits: the shadow time of EASY backfilling
(Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995), for several gangs one after the other.

Holds: with run times that are not exceeded, nodes that stay, and nobody ahead who was not ahead before, a gang starts at its promised time
or earlier. Unknown run times never end. Promises made ahead keep their nodes, from their start to their expected end.
Never: changes the book.
"""

from trainhouse.events.policy import Packing
from trainhouse.scheduler.core.cluster.shape import Placement
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.entries import Reservation, Running, Waiting

MIN_OVERRUN_MS = 1000


def nodes_of(placement: Placement) -> int:
    """The mask of a placement's nodes."""
    mask = 0
    for part in placement:
        mask |= 1 << part.node
    return mask


def likely_end_ms(running: Running, now_ms: int) -> int | None:
    """When a running gang's devices come free, later than now; None: not known.

    One that overran its expected end is believed to run as long again as it was expected to, and so on by doubling.
    """
    end = running.ends_ms if running.leaving_ms is None else running.leaving_ms
    if end is None or end > now_ms:
        return end
    if running.leaving_ms is not None:
        return now_ms + MIN_OVERRUN_MS
    expected = max(MIN_OVERRUN_MS, end - running.started_ms)
    ran = now_ms - running.started_ms
    return running.started_ms + expected * (1 << (ran // expected).bit_length())


def held_until_ms(book: Book, reservation: Reservation) -> int | None:
    """When the gang with this promise is expected to end, if it starts as promised; None: not known."""
    job = book.lanes.get(reservation.job_id)
    return None if job is None or job.run_ms is None else reservation.start_ms + job.run_ms


def earliest(book: Book, job: Waiting, packing: Packing, ahead: list[Reservation], now_ms: int) -> Reservation | None:
    """The first time at which a waiting gang fits (an elastic one at its least size); None: not with the ends that are known."""
    pool, running = job.shape.pool, book.running
    ends = [(end, i) for i, r in running.items() if r.job.shape.pool == pool and (end := likely_end_ms(r, now_ms)) is not None]
    until = [(held_until_ms(book, a), a) for a in ahead]
    ends.extend((end, "") for end, _ in until if end is not None)
    ends.sort()
    trial, wanted = book.cluster.fork(), job.shape.min_ranks or job.shape.ranks
    for at, (end, job_id) in enumerate(ends):
        if job_id:
            done = running[job_id]
            trial.give(done.placement, done.job.shape)
        if at + 1 < len(ends) and ends[at + 1][0] == end:
            continue
        placement = trial.place(job.shape, packing, ranks=wanted, avoid=_kept(until, end, job.run_ms))
        if placement is not None:
            return Reservation(job.job_id, end, nodes_of(placement), now_ms)
    return None


def _kept(until: list[tuple[int | None, Reservation]], start_ms: int, run_ms: int | None) -> int:
    """The nodes that promises ahead need at a time when a gang would run from `start_ms` for `run_ms`."""
    mask = 0
    for end, ahead in until:
        before = run_ms is not None and start_ms + run_ms <= ahead.start_ms
        after = end is not None and start_ms >= end
        if not before and not after:
            mask |= ahead.nodes
    return mask
