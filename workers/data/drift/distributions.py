"""Two versions' distributions of one quantity in groups that both have, and what they differ by beyond limits and noise. Pure.

Holds: limits do not fall with more values, and grow with fewer: what chance alone gives is no drift.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainhouse.events.model.dataset_profile import MOST_TOP_VALUES, NumberSketch, ValueCounts
from trainhouse.workers.data.drift import drift_measures

LEAST_VALUES: Final = 30
"""Fewer are not compared."""
MOST_GROUPS: Final = 10
LEAST_OF_GROUP: Final = 5


@dataclass(frozen=True)
class DriftLimits:
    """Values that differences exceed to be drift, beside what chance gives with probability `alpha` to any field of an undrifted pair.

    PSI from 0.1 on is a moderate shift by the usual rule of thumb (Siddiqi), from 0.25 a large one.
    """

    psi: float = 0.1
    ks: float = 0.1
    share: float = 0.05
    """Of samples without the field, or with numbers in it, 0 to 1."""
    value_share: float = 0.001
    """Of a value that the other version has not, among all values."""
    alpha: float = 0.01


@dataclass(frozen=True)
class Difference:
    """A figure and its limit at these sizes."""

    value: float
    limit: float

    @property
    def exceeded(self) -> bool:
        """Whether it is beyond its limit."""
        return self.value > self.limit


def numbers_differ(before: NumberSketch, after: NumberSketch, limits: DriftLimits, alpha: float) -> tuple[Difference, Difference]:
    """PSI and KS statistic of two sketches of numbers."""
    shift = max(before.shift, after.shift)
    pairs = _paired(_bins(before, shift), _bins(after, shift))
    columns = [a for a, _ in pairs], [b for _, b in pairs]
    statistic = drift_measures.ks(*columns)
    noise = drift_measures.ks_noise(before.count, after.count, alpha)
    return _psi(_equal_groups(pairs), limits, alpha), Difference(statistic, max(limits.ks, noise))


@dataclass(frozen=True)
class Unlisted:
    """Most that a value has in each version that does not list it."""

    before: int
    after: int


def values_differ(
    before: ValueCounts, after: ValueCounts, sizes: tuple[int, int], unlisted: Unlisted, limits: DriftLimits, alpha: float
) -> Difference | None:
    """PSI of two counts of values, of all of which there are `sizes`; None where they are too many to be counted."""
    if not before.top or not after.top:
        return None
    # A value that is not listed has an unknown count, unless all are listed, or its most is less than what the other version has.
    known = {v for v in before.top if v in after.top or after.complete} | {v for v in after.top if v in before.top or before.complete}
    smaller = min(sizes) / sum(sizes)
    pairs = [(before.top.get(value, 0), after.top.get(value, 0)) for value in sorted(known)]
    pairs += [(n, unlisted.after) for v, n in sorted(before.top.items()) if v not in known and unlisted.after * sizes[0] < n * sizes[1]]
    pairs += [(unlisted.before, n) for v, n in sorted(after.top.items()) if v not in known and unlisted.before * sizes[1] < n * sizes[0]]
    groups = [pair for pair in pairs if sum(pair) * smaller >= LEAST_OF_GROUP]
    rest = max(0, sizes[0] - sum(a for a, _ in groups)), max(0, sizes[1] - sum(b for _, b in groups))
    return _psi([*groups, rest] if any(rest) else groups, limits, alpha)


def values_without(listed: ValueCounts, other: ValueCounts, sizes: tuple[int, int], limits: DriftLimits, alpha: float) -> list[str]:
    """Values of the first version, of a share and a count that chance does not give, that the second one has not; the most frequent first.
    None where the second one has more values than are listed."""
    if not other.complete:
        return []
    size, other_size = sizes
    return [
        value
        for value, count in sorted(listed.top.items(), key=lambda each: (-each[1], each[0]))
        if value not in other.top
        and count >= limits.value_share * size
        and drift_measures.chance_of_absence(count, size, other_size) < alpha / MOST_TOP_VALUES
    ]


def shares_differ(part: int, before: int, part_after: int, after: int, limits: DriftLimits, alpha: float) -> bool:
    """Whether two shares lie farther apart than their limit, and than chance puts them."""
    if abs(part_after / after - part / before) <= limits.share:
        return False
    return drift_measures.chance_of_shares(part, before, part_after, after) < alpha


def few_numbers(sketch: NumberSketch | None) -> ValueCounts | None:
    """Counts of numbers that are few and exact, as labels are; None of others."""
    exact = sketch.exact_counts() if sketch is not None else None
    if exact is None or len(exact) > MOST_TOP_VALUES:
        return None
    return ValueCounts(distinct=len(exact), top={f"{number:.17g}": count for number, count in exact.items()})


def _psi(groups: list[tuple[int, int]], limits: DriftLimits, alpha: float) -> Difference:
    before, after = [a for a, _ in groups], [b for _, b in groups]
    noise = drift_measures.psi_noise(len(groups), sum(before), sum(after), alpha)
    return Difference(drift_measures.psi(before, after), max(limits.psi, noise))


def _bins(sketch: NumberSketch, shift: int) -> dict[int, int]:
    bins = dict[int, int]()
    for each, count in zip(sketch.bins, sketch.counts, strict=True):
        coarse = each >> (shift - sketch.shift)
        bins[coarse] = bins.get(coarse, 0) + count
    return bins


def _paired(before: Mapping[int, int], after: Mapping[int, int]) -> list[tuple[int, int]]:
    return [(before.get(each, 0), after.get(each, 0)) for each in sorted(before.keys() | after.keys())]


def _equal_groups(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of bins with about equal numbers of values of both versions together, so many that each is likely to have some of both. A bin
    with more than its share leaves equal groups of the rest."""
    sizes = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    left = sum(sizes)
    least = LEAST_OF_GROUP * left / min(sizes)
    count = max(2, min(MOST_GROUPS, min(sizes) // (2 * LEAST_OF_GROUP)))
    groups = list[tuple[int, int]]()
    a = b = 0
    for before, after in pairs:
        a, b = a + before, b + after
        if a + b >= max(least, left / max(1, count - len(groups))):
            groups.append((a, b))
            left -= a + b
            a = b = 0
    if a + b >= least or (a + b and not groups):
        groups.append((a, b))
    elif a + b:
        groups[-1] = groups[-1][0] + a, groups[-1][1] + b
    return groups
