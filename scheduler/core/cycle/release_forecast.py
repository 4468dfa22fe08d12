"""Expected release times of running gangs, in order: the base of reservations and estimated starts.

A gang that overran its expected end is believed to run as long again, by doubling. Such a belief stands until its own time comes, so it is
worked out then, and not at every look.

Holds: an expected time follows from the gangs alone, whatever was asked before.
Never: knows devices.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge

from trainhouse.scheduler.core.queue.entries import Running, Waiting

GUESSED_RUN_MS = 600_000
MIN_OVERRUN_MS = 1000

End = tuple[int, str]
"""(time in ms, job id)"""


def expected_end_ms(job: Waiting, ranks: int, begins_ms: int) -> int | None:
    """Returns the end of a job that begins then on so many ranks; on fewer than it wants (elastic) it takes longer in proportion."""
    if job.run_ms is None:
        return None
    return begins_ms + -(-job.run_ms * job.shape.ranks // ranks)


def end_ms(running: Running) -> int:
    """Returns the time at which a gang is expected to leave its devices: its end, or the deadline if it was asked to leave.

    Without any expectation a short run is guessed, so that those who wait for it get a promise, which moves while the guess proves wrong.
    """
    if running.leaving_ms is not None:
        return running.leaving_ms
    return running.started_ms + GUESSED_RUN_MS if running.ends_ms is None else running.ends_ms


def likely_end_ms(running: Running, now_ms: int) -> int:
    """Returns the time at which a running gang is expected to come free, later than now.

    One that overran its expected end is believed to run as long again as it was expected to, and so on by doubling.
    """
    end = end_ms(running)
    if end > now_ms:
        return end
    if running.leaving_ms is not None:
        return now_ms + MIN_OVERRUN_MS
    expected = max(MIN_OVERRUN_MS, end - running.started_ms)
    ran = now_ms - running.started_ms
    return running.started_ms + expected * (1 << (ran // expected).bit_length())


class Ends:
    """The expected ends of one pool's running gangs.

    `_order`: the times that stand; `_late`: those of gangs that overran. `_overdue`: gangs that should have left by now.
    """

    __slots__ = ("_asked_ms", "_late", "_order", "_overdue")

    def __init__(self) -> None:
        self._order: list[End] = []
        self._late: dict[str, int] = {}
        self._overdue: list[str] = []
        self._asked_ms = 0

    def fork(self) -> "Ends":
        """Equal now, apart from then on."""
        twin = Ends()
        twin._order, twin._late, twin._overdue = self._order.copy(), self._late.copy(), self._overdue.copy()
        twin._asked_ms = self._asked_ms
        return twin

    def put(self, running: Running) -> None:
        """A gang runs, or something else is expected of it (`drop` comes first)."""
        insort(self._order, (end_ms(running), running.job.job_id))

    def drop(self, running: Running) -> None:
        """Takes back what was put."""
        job_id = running.job.job_id
        if job_id in self._overdue:
            self._overdue.remove(job_id)
            return
        end = self._late.pop(job_id, None)
        del self._order[bisect_left(self._order, (end_ms(running) if end is None else end, job_id))]

    def after(self, now_ms: int, running: Mapping[str, Running], more: Iterable[End] = ()) -> Iterator[End]:
        """The likely ends from now on, all later than now, in order; `more` are sorted in. `running`: the gangs that were put."""
        if now_ms < self._asked_ms:
            self._anew(running)
        self._asked_ms = now_ms
        passed = bisect_right(self._order, (now_ms + 1,))
        if passed:
            gone = self._order[:passed]
            del self._order[:passed]
            for _, job_id in gone:
                self._believe(running[job_id], now_ms)
        beside = sorted([*more, *((now_ms + MIN_OVERRUN_MS, job_id) for job_id in self._overdue)])
        return merge(beside, self._order) if beside else iter(self._order)

    def _believe(self, running: Running, now_ms: int) -> None:
        job_id = running.job.job_id
        if running.leaving_ms is not None:
            self._overdue.append(job_id)
        else:
            self._late[job_id] = end = likely_end_ms(running, now_ms)
            insort(self._order, (end, job_id))

    def _anew(self, running: Mapping[str, Running]) -> None:
        """Recomputes the order and forgets the beliefs of a later time."""
        known = [*(job_id for _, job_id in self._order), *self._overdue]
        self._order = sorted((end_ms(running[job_id]), job_id) for job_id in known)
        self._late, self._overdue = {}, []
