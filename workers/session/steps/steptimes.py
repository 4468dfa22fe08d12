"""Step times: counts in buckets of equal ratio, so that a percentile of millions of steps costs a fixed, small memory.

Holds: counts are exact, and a percentile is at most GROWTH too large. The first step of an attempt is often much longer than the others
(compilation, caches): it counts as the longest so far, but for the percentile only while there is no other.
Never: reads a clock.
"""

import math

GROWTH = 1.02
LEAST_MS = 0.01
MOST_MS = 1e9
_LOG_GROWTH = math.log(GROWTH)
BUCKETS = math.ceil(math.log(MOST_MS / LEAST_MS) / _LOG_GROWTH) + 1


class StepTimes:
    """Step times of one attempt. One thread adds, another may read."""

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._first_ms: float | None = None
        self.count = 0
        self.longest_ms: float | None = None

    def add(self, step_ms: float) -> None:
        """One more step."""
        if self._first_ms is None:
            self._first_ms = step_ms
        else:
            self._counts[_bucket(step_ms)] += 1
            self.count += 1
        self.longest_ms = max(step_ms, self.longest_ms or 0.0)

    def percentile_ms(self, share: float) -> float | None:
        """The least time that `share` of all steps do not exceed, up to GROWTH too large; None before the first step."""
        wanted = max(1, math.ceil(share * self.count))
        if self.count == 0 or self.longest_ms is None:
            return self._first_ms
        found = 0
        for bucket, count in enumerate(self._counts):
            found += count
            if found >= wanted:
                return min(LEAST_MS * GROWTH**bucket, self.longest_ms)
        return self.longest_ms


def _bucket(step_ms: float) -> int:
    """The bucket whose upper end is the first at or above this time."""
    if step_ms <= LEAST_MS:
        return 0
    return min(BUCKETS - 1, math.ceil(math.log(step_ms / LEAST_MS) / _LOG_GROWTH - 1e-9))
