"""Comparison of two models on the same samples: differences of metrics with intervals, tests, and a verdict each. Pure.

Holds: equal arrays, limits and seed give equal results; a resample takes each sample with both of its values, and the samples of one group
alone, so that no group is ever lost. `too few samples` is the verdict wherever the samples show neither a difference nor that there is none
beyond the margin; a bootstrap cannot draw a loss that is not there, so it is also that where hardly any samples differ. A claim of
`better` or `worse` is tested over all metrics and groups together (Holm); `not worse` is asked of each, so that it needs no correction as
long as all have to pass.

Sources. Percentile bootstrap: B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993. McNemar's exact test: Q. McNemar,
Psychometrika 12, 1947. Interval of a difference of paired proportions, which is wide where few pairs differ: D. G. Bonett, R. M. Price,
British Journal of Mathematical and Statistical Psychology 65, 2012. S. Holm, Scandinavian Journal of Statistics 6, 1979.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.resampling import LEAST_RESAMPLES, TRANSFORMS, Transform, Values, generator, resampled, value_of

_LEAST_DIFFERENT: Final = 10
"""Samples with another value in each version, of which a bootstrap shows something. Of 1 % of samples that lose much, 100 have none at all
with a probability of 37 %, and then their interval is nothing but 0."""


class Verdict(StrEnum):
    """Judgement on the first of two models by one metric."""

    BETTER = "better"
    NOT_WORSE = "not worse"
    WORSE = "worse"
    TOO_FEW = "too few samples"

    @property
    def passes(self) -> bool:
        """Whether the first model may take the second one's place as far as this metric goes."""
        return self in (Verdict.BETTER, Verdict.NOT_WORSE)


@dataclass(frozen=True)
class ComparisonLimits:
    """`alpha`: probability of a false `better` or `worse` among all metrics and groups of two equal models. `least_samples`: fewer are too
    few for a verdict. `resamples`: of the bootstrap."""

    alpha: float = 0.05
    least_samples: int = 100
    resamples: int = 9_999
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InvalidEvaluationError(f"alpha={self.alpha}: give a probability between 0 and 1, such as 0.05")
        if self.least_samples < 2 or self.resamples < LEAST_RESAMPLES:
            raise InvalidEvaluationError(f"give least_samples of 2 at least, and resamples of {LEAST_RESAMPLES} at least")


@dataclass(frozen=True)
class PairedMetric:
    """A metric of two models on the same samples: arrays of shape (samples,), in the same order. A model's value is
    `transform(sum(numerator) / sum(weight))`; without weights, of the mean. `margin`: loss, in the metric's unit, that is no loss."""

    metric: str
    first: Values
    second: Values
    first_weight: Values | None = None
    second_weight: Values | None = None
    transform: Transform = "identity"
    higher_is_better: bool = True
    margin: float = 0.0
    group: str = ""

    @property
    def samples(self) -> int:
        """Samples that both have."""
        return len(self.first)

    @property
    def counting(self) -> int:
        """Samples with a weight, of the version that has fewer of them."""
        weights = [each for each in (self.first_weight, self.second_weight) if each is not None]
        return min((int(np.count_nonzero(each)) for each in weights), default=self.samples)

    @property
    def different(self) -> int:
        """Samples whose values or weights differ by more than rounding does."""
        columns = [(self.first, self.second)]
        if self.first_weight is not None or self.second_weight is not None:
            ones = np.ones(self.samples)
            columns.append(tuple(ones if each is None else each for each in (self.first_weight, self.second_weight)))  # type: ignore[arg-type]
        return int(np.any([~np.isclose(*each, rtol=1e-9, atol=1e-12) for each in columns], axis=0).sum())

    def weighted(self) -> "PairedMetric":
        """The same without samples that add nothing to either version's sums."""
        if self.first_weight is None or self.second_weight is None:
            return self
        adding = np.any([each != 0 for each in (self.first, self.second, self.first_weight, self.second_weight)], axis=0)
        return replace(
            self,
            first=self.first[adding],
            second=self.second[adding],
            first_weight=self.first_weight[adding],
            second_weight=self.second_weight[adding],
        )

    @property
    def is_binary(self) -> bool:
        """Whether each sample is right or wrong, so that McNemar's test holds."""
        plain = self.transform == "identity" and self.first_weight is None and self.second_weight is None
        return plain and all(bool(np.all((each == 0) | (each == 1))) for each in (self.first, self.second))


@dataclass(frozen=True)
class ComparedMetric:
    """`samples`: those that count, which have a weight in both versions. `difference`: first less second; `low`, `high`: its interval of
    1 - alpha; `p`: of no difference, by `test`; `p_adjusted`: over all metrics and groups that were compared together. Of too few samples
    there are none of these."""

    metric: str
    group: str
    samples: int
    first: float
    second: float
    difference: float
    margin: float
    higher_is_better: bool
    verdict: Verdict
    test: str = ""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    p_bootstrap: float | None = None


def compare_metrics(pairs: Sequence[PairedMetric], limits: ComparisonLimits | None = None) -> list[ComparedMetric]:
    """Compares the first model with the second one, in the order of `pairs`. Raises InvalidEvaluationError for numbers that are none, for
    values of unequally many samples, and for models whose value is too large for a number."""
    limits = limits or ComparisonLimits()
    for pair in pairs:
        _check(pair)
    found = [_measured(pair.weighted(), limits) for pair in pairs]
    tested = [n for n, each in enumerate(found) if each.p is not None]
    if tested:
        adjusted = multipletests([found[n].p for n in tested], alpha=limits.alpha, method="holm")[1]
        for n, p in zip(tested, adjusted, strict=True):
            found[n] = replace(found[n], p_adjusted=float(p))
    return [replace(each, verdict=_verdict(each, limits.alpha)) for each in found]


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on all together: the worst, where `better` needs one that is better and none that fails. Of none: too few samples."""
    for failing in (Verdict.WORSE, Verdict.TOO_FEW):
        if failing in verdicts or not verdicts:
            return failing if verdicts else Verdict.TOO_FEW
    return Verdict.BETTER if Verdict.BETTER in verdicts else Verdict.NOT_WORSE


def bootstrap_differences(pair: PairedMetric, limits: ComparisonLimits) -> Values:
    """Differences of the metric, first less second, in resamples of the pairs; shape (resamples,)."""
    columns, difference = _columns(pair)
    return resampled(columns, difference, limits.resamples, generator(limits.seed, pair.metric, pair.group))


def _columns(pair: PairedMetric) -> tuple[tuple[Values, ...], Callable[..., Any]]:
    """Arrays of which rows are drawn, and the difference as a function of them."""
    transform = TRANSFORMS[pair.transform]
    if pair.transform == "identity" and pair.first_weight is None and pair.second_weight is None:
        return (pair.first - pair.second,), lambda gained, axis, size: gained.sum(axis) / size
    ones = np.ones(pair.samples)
    weights = (ones if each is None else each for each in (pair.first_weight, pair.second_weight))

    def difference(first: Values, second: Values, of_first: Values, of_second: Values, axis: int, size: int) -> Any:
        del size
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a resample without weight has no value
            return transform(first.sum(axis) / of_first.sum(axis)) - transform(second.sum(axis) / of_second.sum(axis))

    return (pair.first, pair.second, *weights), difference


def _name(pair: PairedMetric) -> str:
    return f"{pair.metric} of group {pair.group}" if pair.group else pair.metric


def _check(pair: PairedMetric) -> None:
    name = _name(pair)
    if not pair.margin >= 0:
        raise InvalidEvaluationError(f"{name}: margin={pair.margin}: give a loss that is no loss, 0 or more")
    columns = [each for each in (pair.first, pair.second, pair.first_weight, pair.second_weight) if each is not None]
    if {each.shape for each in columns} != {(pair.samples,)}:
        raise InvalidEvaluationError(f"{name}: {sorted({len(c) for c in columns})} values: give both models' values of the same samples")
    for column in columns:
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            raise InvalidEvaluationError(
                f"{name}: the value of sample {bad[0]} is {column[bad[0]]} ({len(bad)} such in all): evaluate that version again, or "
                "correct the suite; a sample without a value cannot be compared"
            )
    for weight in (pair.first_weight, pair.second_weight):
        if weight is not None and ((weight < 0).any() or (pair.samples and weight.sum() <= 0)):
            raise InvalidEvaluationError(
                f"{name}: weights are below 0, or all 0: give the number of tokens, or other weights, of each sample"
            )


def _measured(pair: PairedMetric, limits: ComparisonLimits) -> ComparedMetric:
    columns = ((pair.first, pair.first_weight), (pair.second, pair.second_weight))
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = (value_of(values, weight, pair.transform) for values, weight in columns)
    for value in (first, second, first - second):
        if not np.isfinite(value):
            raise InvalidEvaluationError(
                f"{_name(pair)}: the value of a version is {value}, which no other can be compared with: correct the suite, or leave the "
                "metric out of it"
            )
    found = ComparedMetric(
        metric=pair.metric,
        group=pair.group,
        samples=pair.counting,
        first=first,
        second=second,
        difference=first - second,
        margin=pair.margin,
        higher_is_better=pair.higher_is_better,
        verdict=Verdict.TOO_FEW,
    )
    if pair.counting < limits.least_samples or not (pair.is_binary or pair.different >= _LEAST_DIFFERENT):
        return found
    drawn = bootstrap_differences(pair, limits)
    if not np.isfinite(drawn).all():
        return found
    p = _p_of(drawn, found.difference)
    if pair.is_binary:
        exact, low, high = _binary(pair, limits.alpha)
        return replace(found, test="mcnemar", p=exact, low=low, high=high, p_bootstrap=p)
    low, high = (float(each) for each in np.quantile(drawn, [limits.alpha / 2, 1 - limits.alpha / 2]))
    return replace(found, test="paired bootstrap", p=p, low=low, high=high, p_bootstrap=p)


def _p_of(drawn: Values, difference: float) -> float:
    """Two-sided p of no difference: how often resamples lie on the other side of 0. Beyond what so many resamples show, by their standard
    error."""
    least = 2 / (len(drawn) + 1)
    p = least * (1 + min(int((drawn <= 0).sum()), int((drawn >= 0).sum())))
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(drawn.std())
    if p <= least and spread > 0:
        return min(p, float(2 * stats.norm.sf(abs(difference) / spread)))
    return min(1.0, p)


def _binary(pair: PairedMetric, alpha: float) -> tuple[float, float, float]:
    """McNemar's exact p, and the interval of the difference."""
    only_first = int(((pair.first == 1) & (pair.second == 0)).sum())
    only_second = int(((pair.first == 0) & (pair.second == 1)).sum())
    p = float(mcnemar([[0, only_first], [only_second, 0]], exact=True).pvalue)
    size = pair.samples + 2
    shares = (only_first + 1) / size, (only_second + 1) / size
    middle = shares[0] - shares[1]
    half = float(stats.norm.isf(alpha / 2)) * float(np.sqrt((sum(shares) - middle**2) / size))
    return min(1.0, p), middle - half, middle + half


def _verdict(found: ComparedMetric, alpha: float) -> Verdict:
    if found.p_adjusted is None or found.low is None or found.high is None:
        return Verdict.TOO_FEW
    gain, worst = (found.difference, found.low) if found.higher_is_better else (-found.difference, -found.high)
    if found.p_adjusted < alpha and gain > 0:
        return Verdict.BETTER
    if worst >= -found.margin:
        return Verdict.NOT_WORSE
    return Verdict.WORSE if found.p_adjusted < alpha and gain < 0 else Verdict.TOO_FEW
