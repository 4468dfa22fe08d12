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

    __slots__ = ("_beyond", "_cells", "count")

    def __init__(self, cells: tuple[tuple[int, int, int], ...] = ()) -> None:
        self._cells = cells
        self.count = sum(c for _, c, _ in cells)
        self._beyond: list[tuple[int, int, int]] | None = None

    def plus(self, run_ms: int, forget_at: int) -> "Histogram":
        """With one more run time; from `forget_at` cases on, all counts are halved first."""
        cells = self._cells if self.count < forget_at else _halved(self._cells)
        bucket = bucket_of(run_ms)
        for i, (b, count, total) in enumerate(cells):
            if b == bucket:
                return Histogram((*cells[:i], (b, count + 1, total + run_ms), *cells[i + 1 :]))
            if b > bucket:
                return Histogram((*cells[:i], (bucket, 1, run_ms), *cells[i:]))
        return Histogram((*cells, (bucket, 1, run_ms)))

    def beyond(self, bucket: int, ran_ms: int) -> tuple[int, int]:
        """How many run times were longer than `ran_ms` (of the bucket that `ran_ms` is in), and their sum in ms.

        The bucket itself counts if its mean is longer.
        """
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
        return cls(tuple((b, n, s) for b, n, s in rows))


def _halved(cells: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple((b, n // 2, (s // n) * (n // 2)) for b, n, s in cells if n >= 2)
