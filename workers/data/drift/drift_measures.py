"""Measures of how two samples of one quantity differ, each with the value that chance alone seldom exceeds. Pure.

Sources. PSI, the symmetrised Kullback-Leibler divergence of binned data: N. Siddiqi, Credit Risk Scorecards, 2006. Its distribution
without drift, (1/n + 1/m) times chi-squared with one degree of freedom less than groups: B. Yurdakul, J. Naranjo, Statistical properties of
the population stability index, Journal of Risk Model Validation 14 (4), 2020. Quantiles of chi-squared: E. B. Wilson, M. M. Hilferty, PNAS
17, 1931. The bound of KS, which is conservative for values in bins: N. V. Smirnov, Annals of Mathematical Statistics 19, 1948. Shares: the
exact test of R. A. Fisher, The Design of Experiments, 1935, its smaller tail twice; a normal approximation has many alarms of rare nulls in
a small sample.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

Counts = Sequence[int]
_HALF: Final = 0.5
"""Is added to each group's count, so that an empty one has a logarithm (Jeffreys)."""
_NEGLIGIBLE: Final = 1e-9
"""Of a sum, its last term."""


def psi(before: Counts, after: Counts) -> float:
    """Population stability index of two samples by group, each of which has values in one of the two."""
    total, other = (sum(counts) + _HALF * len(before) for counts in (before, after))
    shares = (((a + _HALF) / total, (b + _HALF) / other) for a, b in zip(before, after, strict=True))
    return sum((q - p) * math.log(q / p) for p, q in shares)


def psi_noise(groups: int, before: int, after: int, alpha: float) -> float:
    """The value that the index of two undrifted samples of these sizes exceeds with probability `alpha`."""
    return chi_squared_quantile(1 - alpha, groups - 1) * (1 / before + 1 / after) if groups > 1 else 0.0


def ks(before: Counts, after: Counts) -> float:
    """Kolmogorov-Smirnov statistic of two samples by bins in ascending order: the largest distance of their distribution functions."""
    total, other = sum(before), sum(after)
    reached = reached_after = 0
    largest = 0.0
    for a, b in zip(before, after, strict=True):
        reached, reached_after = reached + a, reached_after + b
        largest = max(largest, abs(reached / total - reached_after / other))
    return largest


def ks_noise(before: int, after: int, alpha: float) -> float:
    """The value that the statistic of two undrifted samples of these sizes exceeds with probability `alpha` at most."""
    return math.sqrt(-math.log(alpha / 2) / 2 * (1 / before + 1 / after))


def chance_of_shares(part: int, before: int, part_after: int, after: int) -> float:
    """Probability that two undrifted shares, `part` of `before` and `part_after` of `after`, lie as far apart or farther. The farther they
    are, the fewer terms are summed up."""
    if part * after < part_after * before:
        part, before, part_after, after = part_after, after, part, before
    both = part + part_after
    term = math.exp(_log_choose(before, part) + _log_choose(after, part_after) - _log_choose(before + after, both))
    tail = 0.0
    while term > tail * _NEGLIGIBLE:
        tail += term
        term *= (both - part) * (before - part) / ((part + 1) * (after - both + part + 1))
        part += 1
    return min(1.0, 2 * tail)


def chance_of_absence(count: int, size: int, other_size: int) -> float:
    """Probability that none of `count` equal values lies in the other one of two undrifted samples."""
    return (size / (size + other_size)) ** count


def _log_choose(count: int, chosen: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def chi_squared_quantile(probability: float, degrees: int) -> float:
    """Quantile of the chi-squared distribution, within 2 % in its upper tail from 1 degree on."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + NormalDist().inv_cdf(probability) * math.sqrt(spread)) ** 3)
