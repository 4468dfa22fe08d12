"""A node's own rhythm: how its heartbeats came lately, and how unusual a silence is for it.

Holds: the phi accrual of Hayashibara, Defago, Yared and Katayama, "The phi accrual failure detector" (SRDS 2004): phi is -log10 of the
chance that a heartbeat comes this late, if gaps are normal with the mean and deviation of the last WINDOW ones. The chance comes from a
table, so that it is the same everywhere.
Never: counts time in which the detector did not read; the caller takes it out of a gap.
"""

from dataclasses import dataclass, field
from math import sqrt
from typing import Final

WINDOW: Final = 32
FEWEST: Final = 8
LEAST_DEVIATION: Final = 0.25
"""Of the interval: even the most regular node is granted so much."""
PHI: Final = (0.30103, 0.79954, 1.64302, 2.86970, 4.49934, 6.54265, 9.00586, 11.89285, 15.20614)
"""-log10 of the upper tail of the normal distribution, 0 to 8 deviations above its mean."""


@dataclass(slots=True)
class Rhythm:
    """The last gaps between heartbeats, in milliseconds of listening, the oldest overwritten first."""

    gaps_ms: list[int] = field(default_factory=list)
    place: int = 0

    def add(self, gap_ms: int) -> None:
        """One more gap; forgets the oldest beyond WINDOW."""
        if len(self.gaps_ms) < WINDOW:
            self.gaps_ms.append(gap_ms)
        else:
            self.gaps_ms[self.place] = gap_ms
            self.place = (self.place + 1) % WINDOW

    def mean_ms(self, interval_ms: float) -> float:
        """Returns the mean interval of the node's heartbeats, in ms: the promised one, or longer if they take longer."""
        if len(self.gaps_ms) < FEWEST:
            return interval_ms
        return max(interval_ms, sum(self.gaps_ms) / len(self.gaps_ms))

    def deviation_ms(self, interval_ms: float) -> float:
        """Of its gaps, LEAST_DEVIATION of the promised interval at least."""
        least, count = LEAST_DEVIATION * interval_ms, len(self.gaps_ms)
        if count < FEWEST:
            return least
        total = sum(self.gaps_ms)
        spread = count * sum(gap * gap for gap in self.gaps_ms) - total * total
        return max(least, sqrt(max(0, spread)) / count)

    def phi(self, silent_ms: float, interval_ms: float) -> float:
        """Returns the suspicion level of a silence (phi accrual): 0 to 15.2; it grows with the silence."""
        return phi_of((silent_ms - self.mean_ms(interval_ms)) / self.deviation_ms(interval_ms))


def phi_of(deviations: float) -> float:
    """-log10 of the chance of a value so many standard deviations above the mean; from the table, in straight lines."""
    if deviations <= 0:
        return 0.0
    below = int(deviations)
    if below >= len(PHI) - 1:
        return PHI[-1]
    return PHI[below] + (PHI[below + 1] - PHI[below]) * (deviations - below)
