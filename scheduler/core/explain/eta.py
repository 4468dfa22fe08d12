"""When a waiting job may start, where no start time is held for it: by the expected ends of what runs, and what waits before it.

An estimate, not a promise: devices that come free are counted, wherever they are; jobs before it take theirs first.

Holds: later places never get an earlier time. Never: a claim where run times are not known.
"""

from bisect import bisect_left

from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.release_forecast import likely_end_ms


class Outlook:
    """The devices of one pool that come free, by time."""

    def __init__(self, book: Book, pool: str, now_ms: int) -> None:
        running = [r for r in book.running.values() if r.job.shape.pool == pool]
        ends = sorted((likely_end_ms(r, now_ms), r.ranks) for r in running if r.ends_ms is not None or r.leaving_ms is not None)
        self._now_ms = now_ms
        self._free = book.cluster.free(pool)
        self._total = book.cluster.total(pool)
        self._times: list[int] = []
        self._freed: list[int] = []
        for end, ranks in ends:
            self._times.append(end)
            self._freed.append(ranks + (self._freed[-1] if self._freed else 0))
        self._busy_ms = sum(ranks * (end - now_ms) for end, ranks in ends)
        self._known = len(ends) == len(running)

    def eta_ms(self, ranks: int, ranks_before: int, work_before_ms: int | None) -> tuple[int | None, str]:
        """The time, and what it rests on. `work_before_ms`: device-milliseconds of those before, None where not known."""
        missing = ranks + ranks_before - self._free
        if missing <= 0:
            return self._now_ms, "enough devices are free in all, though not where it needs them"
        at = bisect_left(self._freed, missing)
        if at < len(self._times):
            return self._times[at], f"the expected ends of {at + 1} running jobs, after {ranks_before} devices for the jobs before it"
        if not self._known or work_before_ms is None or not self._total:
            return None, "run times of jobs before it, or of running ones, are not known"
        return self._now_ms + (self._busy_ms + work_before_ms) // self._total, "the expected work before it, on all devices of the pool"
