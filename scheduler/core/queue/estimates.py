"""Run time estimates of jobs, learned from the jobs before them.

Holds: whole milliseconds and integer arithmetic only; what is known is a function of what was learned, in order; memory is bounded:
`MAX_KIN` kinds of jobs, `BUCKETS` counts for each. A fork learns apart.
Never: takes a run that was cut short for a whole one (the caller learns from jobs that ended by themselves).

A kin is a tuple from the general to the particular, such as (team, user, name, ranks). Every prefix of it has a histogram of run times,
in buckets of a quarter of an octave. The expected remaining time at an age is the mean of the run times that were longer, less the age;
the particular kin is believed as much as it has such cases, against `WEIGHT` cases' worth of the more general one (the usual shrinkage
of a small group's mean towards that of its parent).
"""

from collections.abc import Iterable

from trainhouse.scheduler.core.queue.histogram import BUCKETS, Histogram, bucket_of

Kin = tuple[str, ...]

MAX_KIN = 8192
WEIGHT = 4
FORGET_AT = 4096
"""Cases of one kin at which all its counts are halved, so that what is usual may change."""

__all__ = ["BUCKETS", "MAX_KIN", "Estimates", "Kin"]


class Estimates:
    """Expected run times by kin."""

    __slots__ = ("_known", "_learned", "_shared", "_used")

    def __init__(self) -> None:
        self._known: dict[Kin, Histogram] = {}
        self._used: dict[Kin, int] = {}
        self._learned = 0
        self._shared = False

    def fork(self) -> "Estimates":
        """The same knowledge, learning apart from now on. Costs nothing until one of the two learns."""
        other = Estimates()
        other._known, other._used, other._learned = self._known, self._used, self._learned
        self._shared = other._shared = True
        return other

    def learn(self, kin: Kin, run_ms: int) -> None:
        """Notes the whole run time of a job that ended by itself. Run times below 1 ms count as 1."""
        if self._shared:
            self._known, self._used, self._shared = dict(self._known), dict(self._used), False
        self._learned += 1
        for n in range(len(kin) + 1):
            key = kin[:n]
            old = self._known.get(key)
            if old is None and len(self._known) >= MAX_KIN:
                self._forget()
            self._known[key] = (old or Histogram()).plus(max(1, run_ms), FORGET_AT)
            self._used[key] = self._learned

    def expected(self, kin: Kin, ran_ms: int = 0) -> int | None:
        """The expected remaining run time, ms, of a job that ran for `ran_ms`; None while nothing at all is known.

        Where nothing known ever ran so long, as long again as it ran: the doubling estimate.
        """
        root = self._known.get(())
        if root is None:
            return None
        bucket = bucket_of(ran_ms)
        count, total = root.beyond(bucket, ran_ms)
        mean = total // count - ran_ms if count else max(1, ran_ms)
        for n in range(1, len(kin) + 1):
            known = self._known.get(kin[:n])
            if known is None:
                break
            count, total = known.beyond(bucket, ran_ms)
            mean = (total - count * ran_ms + WEIGHT * mean) // (count + WEIGHT)
        return max(1, mean)

    def rows(self) -> list[tuple[Kin, int, tuple[tuple[int, int, int], ...]]]:
        """All knowledge as plain data, in the order of kin, for a snapshot: kin, last use, (bucket, count, total) each."""
        return [(kin, self._used[kin], self._known[kin].rows()) for kin in sorted(self._known)]

    @classmethod
    def from_rows(cls, rows: list[tuple[Kin, int, tuple[tuple[int, int, int], ...]]]) -> "Estimates":
        """The inverse of `rows`."""
        made = cls()
        for kin, used, cells in rows:
            made._known[tuple(kin)] = Histogram.from_rows(cells)
            made._used[tuple(kin)] = used
            made._learned = max(made._learned, used)
        return made

    def of_kins(self, kins: Iterable[Kin]) -> "Estimates":
        """Returns the estimates of these kins and of the more general ones, alone."""
        wanted = {kin[:n] for kin in kins for n in range(len(kin) + 1)}
        return self.from_rows([row for row in self.rows() if row[0] in wanted])

    def adopt(self, others: "Estimates") -> None:
        """Takes over what another one knows of kin that nothing is known of here."""
        if self._shared:
            self._known, self._used, self._shared = dict(self._known), dict(self._used), False
        for kin in sorted(others._known):
            if kin not in self._known:
                if len(self._known) >= MAX_KIN:
                    self._forget()
                self._known[kin], self._used[kin] = others._known[kin], self._learned

    def _forget(self) -> None:
        """Drops the eighth of all kin that was not met for longest; never the root, which every job meets."""
        oldest = sorted(self._used, key=lambda kin: (self._used[kin], kin))[: MAX_KIN // 8]
        for kin in oldest:
            if kin:
                del self._known[kin], self._used[kin]
