"""Interval between saves. Pure: everything comes in as an argument, and the next state goes out.

Holds: the interval is the one that loses least time to saves and to repeated work together (Young 1974, in Daly's 2006 form),
never outside the spec's bounds, unless an upload takes longer: one is under way at a time. What is not measured yet is the prior's guess.
"""

import math
from dataclasses import dataclass, replace

COST_WEIGHT = 0.3


@dataclass(frozen=True)
class IntervalBounds:
    """Of the spec. `every_s`, where given, decides alone; saves by steps are the session's. A minimum above the maximum counts for both."""

    min_interval_s: float = 30.0
    max_interval_s: float = 600.0
    every_s: float | None = None


@dataclass(frozen=True)
class Measured:
    """Measured cost of saves and rate of failures so far. `prior_mtbf_s` counts as one failure seen in that time.

    `save_cost_s`: for which a save holds training up. `upload_s`: what it takes beside training after that.
    """

    save_cost_s: float = 1.0
    upload_s: float = 0.0
    saves: int = 0
    uploads: int = 0
    failures: int = 0
    run_s: float = 0.0
    prior_mtbf_s: float = 6 * 3600.0

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures, with the prior."""
        return (self.run_s + self.prior_mtbf_s) / (self.failures + 1)

    def saved(self, cost_s: float) -> "Measured":
        """With one more save that held up training for `cost_s`."""
        mean = cost_s if self.saves == 0 else (1 - COST_WEIGHT) * self.save_cost_s + COST_WEIGHT * cost_s
        return replace(self, save_cost_s=mean, saves=self.saves + 1)

    def uploaded(self, upload_s: float) -> "Measured":
        """With one more upload of this length."""
        mean = upload_s if self.uploads == 0 else (1 - COST_WEIGHT) * self.upload_s + COST_WEIGHT * upload_s
        return replace(self, upload_s=mean, uploads=self.uploads + 1)


def best_interval_s(save_cost_s: float, mtbf_s: float) -> float:
    """Daly's higher-order estimate of the time between the end of a save and the start of the next."""
    if save_cost_s <= 0:
        return 0.0
    if save_cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = math.sqrt(save_cost_s / (2 * mtbf_s))
    return math.sqrt(2 * save_cost_s * mtbf_s) * (1 + ratio / 3 + ratio**2 / 9) - save_cost_s


def advised_interval_s(measured: Measured, bounds: IntervalBounds) -> float:
    """The interval to use from now on. That uploads set it is to be seen by their share of it, which the alert `uploads-slow` is about."""
    if bounds.every_s is not None:
        return bounds.every_s
    best_s = best_interval_s(measured.save_cost_s, measured.mtbf_s)
    return max(bounds.min_interval_s, min(bounds.max_interval_s, best_s), measured.upload_s)
