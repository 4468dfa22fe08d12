"""Drift of live values against those of a reference, such as a training split: PSI, KS and Wasserstein distance, with a limit each. Pure.

Holds: a limit is what the reference differs from itself by, where it is drawn anew at its own size and at the live size, or a floor where
that is more; so neither many rows nor few are drift. Of an undrifted reference and its live values, some field is called drifted with a
probability of about `alpha` at most. Equal profiles, limits and seed give equal verdicts.
Never: samples. It reads sketches and counts (`events/model/dataset_profile`), as drift between versions of a dataset does, and shares its
measures with that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from trainhouse.events.model.dataset_profile import MOST_BINS, FieldProfile, NumberSketch, number_of_key
from trainhouse.events.model.model_observations import LiveVerdict
from trainhouse.workers.data.drift import drift_measures
from trainhouse.workers.data.drift.distributions import (
    LEAST_OF_GROUP,
    LEAST_VALUES,
    MOST_GROUPS,
    Difference,
    DriftLimits,
    Unlisted,
    shares_differ,
    values_differ,
    values_without,
)
from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.resampling import generator

_TESTS_OF_FIELD: Final = 7
"""PSI, KS and Wasserstein distance of numbers, PSI of values, new and lost values, one share."""
_MAGNITUDE: Final = np.int64(2**63 - 1)
_MOST_SHIFT: Final = 63
_LONG: Final = 1e6


@dataclass(frozen=True)
class LiveLimits:
    """`floors`: least PSI and KS that are drift, however many rows there are. `wasserstein`: least distance that is, in standard deviations
    of the reference. `alpha`: probability of a false alarm of any field. `resamples`: of the reference."""

    floors: DriftLimits = field(default_factory=DriftLimits)
    wasserstein: float = 0.1
    alpha: float = 0.005
    resamples: int = 499
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or self.resamples < 99:
            raise InvalidEvaluationError(
                f"alpha={self.alpha}, resamples={self.resamples}: give an alpha below 1, and resamples of 99 or more"
            )


@dataclass(frozen=True)
class NumbersDrift:
    """Three measures of two sketches, each with its limit; the Wasserstein distance in standard deviations of the reference."""

    psi: Difference
    ks: Difference
    wasserstein: Difference

    @property
    def exceeded(self) -> dict[str, Difference]:
        """Measures beyond their limits, by name."""
        measures = {"PSI": self.psi, "KS": self.ks, "Wasserstein": self.wasserstein}
        return {name: each for name, each in measures.items() if each.exceeded}


@dataclass(frozen=True)
class LiveFieldDrift:
    """Verdict on one field, with its reasons, and the measures of its numbers where it has some."""

    field: str
    verdict: LiveVerdict
    reason: str = ""
    numbers: NumbersDrift | None = None


@dataclass(frozen=True)
class ProfiledRows:
    """Profiles by field, and the rows that they are of."""

    rows: int
    fields: Mapping[str, FieldProfile]


def live_drift(reference: ProfiledRows, live: ProfiledRows, limits: LiveLimits | None = None) -> list[LiveFieldDrift]:
    """Verdicts on the fields of the reference, sorted by name, and on those that live rows have alone."""
    limits = limits or LiveLimits()
    names = sorted(reference.fields.keys() | live.fields.keys())
    alpha = limits.alpha / (_TESTS_OF_FIELD * max(1, len(names)))
    return [_field(name, reference, live, limits, alpha) for name in names]


def numbers_drift(reference: NumberSketch, live: NumberSketch, limits: LiveLimits, alpha: float, label: str = "") -> NumbersDrift:
    """Measures of live numbers against the reference's. `alpha`: probability with which chance alone exceeds each limit. `label`: of the
    field, so that two fields are drawn apart."""
    bins = _CommonBins.of(reference, live)
    psi_noise, ks_noise, distance_noise = bins.noise(live.count, limits, alpha, label)
    before, after = bins.before.tolist(), bins.after.tolist()
    distance = float(wasserstein_distance(bins.middles, bins.middles, bins.before, bins.after)) / bins.spread
    return NumbersDrift(
        psi=Difference(drift_measures.psi(*(bins.grouped(each).tolist() for each in (bins.before, bins.after))), psi_noise),
        ks=Difference(drift_measures.ks(before, after), ks_noise),
        wasserstein=Difference(distance, distance_noise),
    )


def sketch_of(numbers: NDArray[np.float64]) -> NumberSketch:
    """The sketch of an array of finite numbers, of which there is one at least: the one that they have one by one. Raises
    InvalidEvaluationError."""
    flat = np.ascontiguousarray(numbers, np.float64).ravel() + 0.0
    if not flat.size or not np.isfinite(flat).all():
        raise InvalidEvaluationError("give one number at least, and none that is NaN or infinite: count these as missing")
    bits = flat.view(np.int64)
    keys = np.where(bits >= 0, bits, -(bits & _MAGNITUDE))
    keys.sort()
    apart = (keys[1:] ^ keys[:-1]).view(np.uint64)  # two neighbours have one bin where no bit from the shift on differs
    shift = _least_shift(apart)
    begins = np.flatnonzero(np.concatenate(([True], apart >> np.uint64(shift) != 0)))
    bins, counts = keys[begins] >> shift, np.diff(begins, append=len(keys))
    least, most = float(flat.min()), float(flat.max())
    return NumberSketch(
        least=least,
        most=most,
        mean=min(most, max(least, float((flat / flat.size).sum()))),
        shift=shift,
        bins=tuple(bins.tolist()),
        counts=tuple(counts.tolist()),
    )


def _least_shift(apart: NDArray[np.uint64]) -> int:
    """The least shift with which there are so many bins at most: found by halves, since more shift has never more bins."""
    low, high = 0, _MOST_SHIFT
    while low < high:
        middle = (low + high) // 2
        if np.count_nonzero(apart >> np.uint64(middle)) < MOST_BINS:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True)
class _CommonBins:
    """Counts of two sketches in common bins, ascending, with the middle of each. `group`: of each bin, for PSI; groups have about equal
    numbers of values of the reference."""

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    middles: NDArray[np.float64]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, reference: NumberSketch, live: NumberSketch) -> "_CommonBins":
        shift = max(reference.shift, live.shift)
        counts = [_coarse(each, shift) for each in (reference, live)]
        keys = sorted(counts[0].keys() | counts[1].keys())
        before, after = (np.array([each.get(key, 0) for key in keys], np.int64) for each in counts)
        least, most = min(reference.least, live.least), max(reference.most, live.most)
        middles = np.array([min(most, max(least, number_of_key((key << shift) + ((1 << shift) >> 1)))) for key in keys])
        return cls(before, after, middles, _groups(before, min(reference.count, live.count)))

    @property
    def spread(self) -> float:
        """Standard deviation of the reference; 1 where all of its numbers are one."""
        total = self.before.sum()
        mean = (self.middles * self.before / total).sum()
        spread = float(np.sqrt((((self.middles - mean) ** 2) * self.before / total).sum()))
        return spread if spread > 0 and np.isfinite(spread) else 1.0

    def grouped(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts by group; shape (…, bins) to (…, groups)."""
        starts = np.flatnonzero(np.diff(self.group, prepend=-1))
        return np.asarray(np.add.reduceat(counts, starts, axis=-1))

    def noise(self, live_count: int, limits: LiveLimits, alpha: float, label: str) -> tuple[float, float, float]:
        """Limits of PSI, KS and Wasserstein distance: what the reference differs by from itself, drawn anew at both sizes, or the floor."""
        total = int(self.before.sum())
        rng = generator(limits.seed, label)
        drawn = [rng.multinomial(size, self.before / total, size=limits.resamples) for size in (total, live_count)]
        apart = np.abs(np.cumsum(drawn[0] / total - drawn[1] / live_count, axis=1))
        distances = (apart[:, :-1] * np.diff(self.middles)).sum(1) / self.spread
        psi = _psi_rows(self.grouped(drawn[0]), self.grouped(drawn[1]))
        measures = ((psi, limits.floors.psi), (apart.max(1), limits.floors.ks), (distances, limits.wasserstein))
        found = [max(floor, _upper_quantile(values, alpha)) for values, floor in measures]
        return found[0], found[1], found[2]


def _psi_rows(before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.float64]:
    """The index of `drift_measures.psi` of each row."""
    shares = [(each + 0.5) / (each.sum(1, keepdims=True) + 0.5 * each.shape[1]) for each in (before, after)]
    return np.asarray(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum(1), np.float64)


def _upper_quantile(drawn: NDArray[np.float64], alpha: float) -> float:
    """The value that draws exceed with this probability. Of a probability that so few draws do not show: the largest of them, and what
    their tail goes on with, as an exponential one does."""
    ordered = np.sort(drawn)
    seen = 10 / len(ordered)
    if alpha >= seen:
        return float(np.quantile(ordered, 1 - alpha))
    tail = ordered[-10:]
    begin = float(ordered[-11])
    return begin + float((tail - begin).mean()) * float(np.log(seen / alpha))


def _coarse(sketch: NumberSketch, shift: int) -> dict[int, int]:
    found = dict[int, int]()
    for each, count in zip(sketch.bins, sketch.counts, strict=True):
        key = each >> (shift - sketch.shift)
        found[key] = found.get(key, 0) + count
    return found


def _groups(before: NDArray[np.int64], smaller: int) -> NDArray[np.int64]:
    """The group of each bin: runs of bins that have about equal numbers of the reference, so many that each is likely to have some of the
    smaller sample. A bin with more than its share leaves groups of that size of the rest."""
    count = max(2, min(MOST_GROUPS, smaller // (2 * LEAST_OF_GROUP)))
    middle = (np.cumsum(before) - before / 2) / before.sum()
    return np.unique(np.minimum((middle * count).astype(np.int64), count - 1), return_inverse=True)[1]


def _field(name: str, reference: ProfiledRows, live: ProfiledRows, limits: LiveLimits, alpha: float) -> LiveFieldDrift:
    if name not in live.fields or name not in reference.fields:
        lacking = "live rows have" if name not in live.fields else "the reference has"
        return LiveFieldDrift(name, LiveVerdict.MISSING, f"{lacking} no such field")
    before, after = reference.fields[name], live.fields[name]
    reasons = list[str]()
    compared = False
    if min(reference.rows, live.rows) >= LEAST_VALUES:
        lost = reference.rows - before.samples, live.rows - after.samples
        if shares_differ(lost[0], reference.rows, lost[1], live.rows, limits.floors, alpha):
            reasons.append(f"missing {100 * lost[0] / reference.rows:.1f} % → {100 * lost[1] / live.rows:.1f} %")
    numbers: NumbersDrift | None = None
    if before.numbers and after.numbers and min(before.numbers.count, after.numbers.count) >= LEAST_VALUES:
        numbers = numbers_drift(before.numbers, after.numbers, limits, alpha, name)
        compared = True
        reasons += [f"{measure} {_text(each.value)} (limit {_text(each.limit)})" for measure, each in numbers.exceeded.items()]
    sizes = (before.samples, after.samples)
    if before.values and after.values and min(sizes) >= LEAST_VALUES:
        unlisted = Unlisted(*(0 if each.complete or not each.top else min(each.top.values()) for each in (before.values, after.values)))
        index = values_differ(before.values, after.values, sizes, unlisted, limits.floors, alpha)
        compared = compared or index is not None
        if index is not None and index.exceeded:
            reasons.append(f"PSI of values {index.value:.3f} (limit {index.limit:.3f})")
        added = values_without(after.values, before.values, sizes[::-1], limits.floors, alpha)
        gone = values_without(before.values, after.values, sizes, limits.floors, alpha)
        reasons += [f"{label} values: {', '.join(map(repr, each[:5]))}" for label, each in (("new", added), ("lost", gone)) if each]
    verdict = LiveVerdict.DRIFTED if reasons else LiveVerdict.STABLE if compared else LiveVerdict.TOO_FEW
    return LiveFieldDrift(name, verdict, "; ".join(reasons), numbers)


def _text(figure: float) -> str:
    """A figure for people; a distance may have hundreds of digits."""
    return f"{figure:.3f}" if figure < _LONG else f"{figure:.3g}"
