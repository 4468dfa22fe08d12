"""Run times counted in buckets of a quarter of an octave.

Holds: a histogram never changes (a new one comes out of `plus`); buckets by integers alone, so every machine cuts alike.
Never: keeps a single run time.
"""

from bisect import bisect_left

BUCKETS = 160
"""Enough for 2**39 ms: 17 years."""


def bucket_of(run_ms: int) -> int:
    """The bucket of a run time: its power of two and the next two bits."""
    if run_ms < 4:
        return max(0, run_ms)
    power = run_ms.bit_length() - 1
    return min(BUCKETS - 1, 4 * power - 4 + ((run_ms >> (power - 2)) & 3))


class Histogram:
    """Counts and sums of run times (ms) by bucket."""

    __slots__ = ("_beyond", "_cells", "_total", "count")

    def __init__(self, cells: tuple[tuple[int, int, int], ...] = (), count: int = 0, total: int = 0) -> None:
        self._cells, self.count, self._total = cells, count, total
        self._beyond: list[tuple[int, int, int]] | None = None

    def plus(self, run_ms: int, forget_at: int) -> "Histogram":
        """With one more run time; from `forget_at` cases on, all counts are halved first."""
        old = self if self.count < forget_at else Histogram.from_rows(_halved(self._cells))
        cells, bucket = old._cells, bucket_of(run_ms)
        at = bisect_left(cells, (bucket,))
        if at < len(cells) and cells[at][0] == bucket:
            _, n, s = cells[at]
            cells = (*cells[:at], (bucket, n + 1, s + run_ms), *cells[at + 1 :])
        else:
            cells = (*cells[:at], (bucket, 1, run_ms), *cells[at:])
        return Histogram(cells, old.count + 1, old._total + run_ms)

    def beyond(self, bucket: int, ran_ms: int) -> tuple[int, int]:
        """Returns the number of run times longer than `ran_ms` (of the bucket that `ran_ms` is in), and their sum in ms.

        The bucket itself counts if its mean is longer.
        """
        if bucket == 0:  # the most usual question, and everything is longer
            return self.count, self._total
        if self._beyond is None:
            self._beyond = self._sums()
        at = bisect_left(self._beyond, (bucket,))
        b, n, s = self._beyond[at]
        if b != bucket:
            return n, s
        _, count, total = self._beyond[at + 1]
        n, s = n - count, s - total
        return (count + n, total + s) if s > n * ran_ms else (count, total)

    def _sums(self) -> list[tuple[int, int, int]]:
        """Of each bucket that has any, and of one behind all: bucket, how many run times are in it or beyond, and their sum. Made once."""
        count = total = 0
        sums = [(BUCKETS, 0, 0)]
        for b, n, s in reversed(self._cells):
            count, total = count + n, total + s
            sums.append((b, count, total))
        return sums[::-1]

    def rows(self) -> tuple[tuple[int, int, int], ...]:
        """(bucket, count, sum in ms) each, in order of buckets."""
        return self._cells

    @classmethod
    def from_rows(cls, rows: tuple[tuple[int, int, int], ...]) -> "Histogram":
        return cls(tuple((b, n, s) for b, n, s in rows), sum(n for _, n, _ in rows), sum(s for _, _, s in rows))


def _halved(cells: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple((b, n // 2, (s // n) * (n // 2)) for b, n, s in cells if n >= 2)
