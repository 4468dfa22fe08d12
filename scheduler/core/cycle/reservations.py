"""The promised starts of one pool during a pass: which stand, which are ahead of the gang in hand, and which nodes they keep.

Holds: `ahead` has the promises of gangs that the pass has come to, in its order; others are of gangs still to come.
Never: makes a promise (`reserve` does), nor changes the book.
"""

from collections.abc import Callable, Iterator

from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.queue.entries import Reservation, Waiting
from trainhouse.scheduler.core.queue.pool_lanes import UNKNOWN_RUN_MS


class Promises:
    """Promises as a pass goes on."""

    __slots__ = ("_book", "_came", "_holders", "_now_ms", "_open", "_pool", "ahead")

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        self._book, self._pool, self._now_ms = book, pool, now_ms
        self._came: dict[str, Reservation] = {}
        self._holders: dict[str, Waiting] = {}
        self._open: int | None = None
        self.ahead: list[Reservation] = []
        for job_id in sorted(book.reservations):
            job = book.lanes.get(job_id)
            if job is None or job.shape.pool == pool:
                self._came[job_id] = book.reservations[job_id]
            if job is not None and job_id not in book.claims:
                self._holders[job_id] = job

    @property
    def none(self) -> bool:
        """Whether no nodes are reserved."""
        return not self.ahead and not self._came

    def of(self, job_id: str) -> Reservation | None:
        """The promise that a gang came into the pass with, unless it was broken since."""
        return self._came.get(job_id)

    def sound(self, promise: Reservation) -> bool:
        """Its time is still to come, its nodes are open, and no job ahead took them."""
        return promise.start_ms > self._now_ms and promise.job_id in self._came and not promise.nodes & ~self._open_nodes()

    def came_before(self, job: Waiting, barred: Callable[[Waiting], bool]) -> bool:
        """Whether a gang of no lower priority, still to come in this pass, was promised its start while `job` waited behind it.

        Shares move while a large gang's devices are gathered: they alone do not take its promise from it. `barred`: who may not start.
        """
        return any(
            promise.made_ms >= job.since_ms and holder.priority <= job.priority and self.sound(promise) and not barred(holder)
            for promise, holder in self._to_come()
        )

    def any_like(self, job: Waiting) -> bool:
        """Whether one of those may stand in the lane of `job`."""
        return any(h.shape == job.shape and h.team == job.team and h.priority == job.priority for _, h in self._to_come())

    def _to_come(self) -> Iterator[tuple[Reservation, Waiting]]:
        """Promises of gangs that the pass has not come to, and their gangs."""
        return ((promise, self._holders[i]) for i, promise in self._came.items() if i in self._holders)

    def kept_from(self, job_id: str, run_ms: int | None, careful: bool) -> int:
        """Nodes that a gang which runs for `run_ms` from now may not use; without `careful`, only those of gangs ahead of it."""
        if not self.ahead and not self._came:
            return 0
        mask, end_ms = 0, UNKNOWN_RUN_MS if run_ms is None else self._now_ms + run_ms
        for promise in self.ahead:
            if end_ms > promise.start_ms:
                mask |= promise.nodes
        if careful:
            for other, promise in self._came.items():
                if end_ms > promise.start_ms and other != job_id:
                    mask |= promise.nodes
        return mask

    def window_ms(self, below_ms: int | None = None) -> int:
        """Longest run time that may use some reserved nodes; 0: none may, or none are reserved.

        `below_ms`: only windows shorter than this count.
        """
        windows = [w for p in self.ahead if (w := p.start_ms - self._now_ms) > 0 and (below_ms is None or w < below_ms)]
        return max(windows, default=0)

    def keep(self, promise: Reservation, *, made: bool) -> None:
        """The gang in hand has this promise. A new one breaks those behind it that count on its nodes."""
        self._came.pop(promise.job_id, None)
        self.ahead.append(promise)
        if made:
            self._break(promise.nodes, 0)

    def started(self, job_id: str, nodes: int, run_ms: int) -> None:
        """A gang started on these nodes: promises of gangs behind it that it does not leave in time are broken."""
        self._came.pop(job_id, None)
        self._break(nodes, self._now_ms + run_ms)

    def forget_rest(self) -> None:
        """All who hold a promise from now on are ahead."""
        self._came = {}

    def unkept(self) -> list[str]:
        """Gangs whose promise is in the book and was not kept, sorted."""
        kept = {p.job_id for p in self.ahead}
        return [i for i in sorted(self._book.reservations) if i not in kept and self._here(i)]

    def _here(self, job_id: str) -> bool:
        job = self._book.lanes.get(job_id)
        return job is None or job.shape.pool == self._pool

    def _break(self, nodes: int, until_ms: int) -> None:
        if self._came:
            self._came = {i: p for i, p in self._came.items() if not (p.nodes & nodes and (not until_ms or until_ms > p.start_ms))}

    def _open_nodes(self) -> int:
        if self._open is None:
            self._open = 0
            for (pool, _), bay in self._book.cluster.bays.items():
                if pool == self._pool:
                    self._open |= bay.nodes
        return self._open
