"""A hypothetical cluster on which a plan is tried: as it is now, or as it will be when all gangs that were asked to leave have left.

Holds: the book is not changed; `back` undoes `gone` exactly; devices claimed for others stay theirs.
Never: decides who leaves.
"""

from collections.abc import Iterable, Sequence

from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Placement, Shape
from trainhouse.scheduler.core.cycle.backfill import nodes_of
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Running, Waiting
from trainhouse.scheduler.core.queue.quotas import Quotas


class Trial:
    """One pool of a book. `leavers`: gangs that leave anyway; `later`: whether their devices count as free."""

    def __init__(self, book: Book, pool: str, *, later: bool = True) -> None:
        self.packing: Packing = book.policy(pool).packing
        self.cluster = book.cluster.fork()
        self.leavers: list[Running] = []
        for job_id in sorted(book.running):
            running = book.running[job_id]
            if later and running.leaving_ms is not None and running.job.shape.pool == pool:
                self.leavers.append(running)
                self.gone(running)

    def gone(self, running: Running) -> None:
        """As if this gang had left."""
        self.cluster.give(running.placement, running.job.shape)

    def back(self, running: Running) -> None:
        """As if it had not."""
        self.cluster.take(running.placement, running.job.shape)

    def place(self, shape: Shape, ranks: int | None = None, avoid: int = 0, only: int | None = None) -> Placement | None:
        """The whole gang, or None."""
        return place(self.cluster, shape, self.packing, ranks=ranks, avoid=avoid, only=only)

    def largest(self, shape: Shape, least: int, most: int, avoid: int = 0, only: int | None = None) -> Placement | None:
        """The most ranks of an elastic gang that fit, of the sizes that it may have, at least `least`, which is one; None: not even that.

        Found by bisection: where so many fit, fewer do (if a packing rule breaks that, the answer is still a valid one).
        """
        found = self.place(shape, least, avoid, only)
        if found is None:
            return None
        sizes = shape.sizes(least, most)
        low, high = 0, max(0, len(sizes) - 1)
        while low < high:
            middle = (low + high + 1) // 2
            placement = self.place(shape, sizes[middle], avoid, only)
            if placement is None:
                high = middle - 1
            else:
                low, found = middle, placement
        return found


def overlap(one: Placement, other: Placement) -> bool:
    """Whether two placements have a device in common."""
    held = {part.node: part.devices for part in one}
    return any(held.get(part.node, 0) & part.devices for part in other)


def occupants(placement: Placement, running: Iterable[Running]) -> list[Running]:
    """Returns those of `running` that are on devices of a placement."""
    held = {part.node: part.devices for part in placement}
    return [r for r in running if any(held.get(part.node, 0) & part.devices for part in r.placement)]


def kept_for_others(book: Book, job: Waiting, now_ms: int, begins_ms: int) -> tuple[int, list[str]]:
    """Nodes that promised starts keep from a gang which starts at `begins_ms`, and the promises of lower rank that it breaks.

    A promise of a gang with a worse priority gives way; any other one does not, unless the gang ends before it.
    """
    mask, broken = 0, []
    for job_id in sorted(book.reservations):
        other = book.lanes.get(job_id)
        if job_id == job.job_id or other is None or other.shape.pool != job.shape.pool:
            continue
        promise = book.reservations[job_id]
        if job.run_ms is not None and begins_ms + job.run_ms <= max(promise.start_ms, now_ms):
            continue
        if other.priority > job.priority:
            broken.append(job_id)
        else:
            mask |= promise.nodes
    return mask, broken


def broken_by(book: Book, job_ids: Sequence[str], placement: Placement) -> list[str]:
    """Returns those of the reservations whose nodes a placement uses."""
    nodes = nodes_of(placement)
    return [i for i in job_ids if book.reservations[i].nodes & nodes]


def pledged(book: Book, pool: str) -> Quotas:
    """Returns the quotas of teams once all that were asked to leave have left, and all claims have started."""
    quotas = book.usage.quotas(pool).fork()
    for job_id in sorted(book.running):
        leaver = book.running[job_id]
        if leaver.leaving_ms is not None and leaver.job.shape.pool == pool:
            quotas.add(leaver.job.team, book.amounts(leaver.job.shape, leaver.placement), -1)
    for job_id in sorted(book.claims):
        running = book.running.get(job_id)
        job = running.job if running is not None else book.lanes.get(job_id)
        if job is not None and job.shape.pool == pool:
            quotas.add(job.team, book.amounts(job.shape, book.claims[job_id].placement))
    return quotas
