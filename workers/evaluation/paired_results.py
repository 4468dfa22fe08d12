"""Comparison of two results of a suite by their results by sample, as a document.

Holds: both are of the same suite, dataset version, split and samples, and each sample has the same group in both, or none is made: two
results whose samples differ say nothing of a difference between models. Metrics without columns by sample are named as not compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from trainhouse.workers.evaluation.comparison import (
    ComparisonLimits,
    PairedMetric,
    Verdict,
    compare_metrics,
    overall,
)
from trainhouse.workers.evaluation.errors import InvalidEvaluationError, UnpairedResultsError
from trainhouse.workers.evaluation.result import EvaluationResult, Metric, Sha256
from trainhouse.workers.evaluation.sample_results import SampleResults

_SHOWN: Final = 3
OVER_ALL: Final = ""
"""The group of all samples."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ComparedEntry(_Part):
    """A metric, over all samples or of one group."""

    metric: str = Field(description="name of the metric")
    group: str = Field(description="group as COLUMN=VALUE; empty of all samples")
    samples: int = Field(ge=0, description="samples that both results have, and that have a weight in both")
    first: float = Field(description="value of the first version")
    second: float = Field(description="value of the second version")
    difference: float = Field(description="first less second")
    low: float | None = Field(description="lower end of the difference's interval")
    high: float | None = Field(description="upper end of the difference's interval")
    margin: float = Field(ge=0, description="loss that is no loss, in the metric's unit")
    higher_is_better: bool = Field(description="direction in which a version is better")
    test: str = Field(description="test that p is of: mcnemar or paired bootstrap; empty of too few samples")
    p: float | None = Field(description="probability of such a difference, or a larger one, between equal versions")
    p_adjusted: float | None = Field(description="p over all metrics and groups, by Holm")
    p_bootstrap: float | None = Field(description="p of the paired bootstrap, also where p is of McNemar's test")
    verdict: Verdict = Field(description="better, not worse, worse, or too few samples, which never passes")


class Comparison(_Part):
    """Comparison of two versions by one suite. `first` is the candidate, `second` the champion or a baseline."""

    format: Literal[1] = Field(1, description="version of this document")
    suite: str = Field(description="suite of both results")
    dataset: str = Field(description="dataset version of both results")
    split: str = Field(description="split of both results")
    first: Sha256 = Field(description="content hash of the version that is compared")
    second: Sha256 = Field(description="content hash of the version that it is compared with")
    first_result: Sha256 = Field(description="hash of the first result")
    second_result: Sha256 = Field(description="hash of the second result")
    alpha: float = Field(gt=0, lt=1, description="probability of a false claim among all entries")
    seed: int = Field(ge=0, description="seed of the bootstrap")
    resamples: int = Field(ge=1, description="resamples of the bootstrap")
    least_samples: int = Field(ge=2, description="samples below which there is no verdict")
    entries: tuple[ComparedEntry, ...] = Field(description="metrics over all samples, then by group")
    not_compared: tuple[Annotated[str, Field(max_length=256)], ...] = Field((), description="metrics that have no values by sample")
    verdict: Verdict = Field(description="the worst verdict of all entries over all samples; groups have their own")
    groups_verdict: Verdict | None = Field(description="the worst verdict of all entries of groups; none without groups")

    def canonical_json(self) -> bytes:
        """The bytes that are stored: sorted JSON, indented by two spaces."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


@dataclass(frozen=True)
class ResultWithSamples:
    """A document and its results by sample."""

    result: EvaluationResult
    samples: SampleResults


def compare_results(
    first: ResultWithSamples, second: ResultWithSamples, margins: Mapping[str, float], limits: ComparisonLimits | None = None
) -> Comparison:
    """Compares the first version with the second one. `margins`: by metric. Raises UnpairedResultsError, InvalidEvaluationError."""
    limits = limits or ComparisonLimits()
    _require_same(first.result, second.result)
    order = _paired_order(first.samples, second.samples)
    common = {name: metric for name, metric in first.result.metrics.items() if name in second.result.metrics}
    unknown = margins.keys() - common.keys()
    if unknown:
        raise InvalidEvaluationError(
            f"margin of {min(unknown)}: both results have the metrics {', '.join(sorted(common))}; name one of them"
        )
    alone = first.result.metrics.keys() ^ second.result.metrics.keys()
    by_sample = {name: metric for name, metric in sorted(common.items()) if metric.columns is not None}
    if not by_sample:
        raise UnpairedResultsError("the results have no metric with values by sample: evaluate both with a suite that writes them")
    pairs = list(_pairs(first, second, order, by_sample, margins))
    found = compare_metrics(pairs, limits)
    entries = tuple(ComparedEntry(**vars(each)) for each in found)
    grouped = [each.verdict for each in found if each.group]
    return Comparison(
        suite=first.result.suite,
        dataset=first.result.dataset,
        split=first.result.split,
        first=first.result.version,
        second=second.result.version,
        first_result=first.result.sha256,
        second_result=second.result.sha256,
        alpha=limits.alpha,
        seed=limits.seed,
        resamples=limits.resamples,
        least_samples=limits.least_samples,
        entries=entries,
        not_compared=tuple(sorted((common.keys() - by_sample.keys()) | alone)),
        verdict=overall([each.verdict for each in found if not each.group]),
        groups_verdict=overall(grouped) if grouped else None,
    )


def _require_same(first: EvaluationResult, second: EvaluationResult) -> None:
    for name in ("suite", "kind", "dataset", "split"):
        mine, other = getattr(first, name), getattr(second, name)
        if mine != other:
            raise UnpairedResultsError(
                f"the results are of another {name} each ({mine!r} and {other!r}), so their samples cannot be paired: evaluate both "
                "versions with one suite on one split of one dataset version"
            )


def _paired_order(first: SampleResults, second: SampleResults) -> NDArray[np.int64]:
    """Place of each sample of the first in the second."""
    places = {key: n for n, key in enumerate(second.keys)}
    missing = [key for key in first.keys if key not in places]
    surplus = places.keys() - set(first.keys)
    if missing or surplus:
        shown = ", ".join(repr(key) for key in [*missing, *sorted(surplus)][:_SHOWN])
        raise UnpairedResultsError(
            f"{len(missing)} samples are in the first result alone, {len(surplus)} in the second alone (such as {shown}): no test of "
            "unpaired samples is made instead; evaluate both versions on all samples of the split"
        )
    return np.array([places[key] for key in first.keys], np.int64)


def _pairs(
    first: ResultWithSamples,
    second: ResultWithSamples,
    order: NDArray[np.int64],
    metrics: Mapping[str, Metric],
    margins: Mapping[str, float],
) -> Iterator[PairedMetric]:
    """The metrics over all samples, then of each group, by name."""
    whole = [_pair(name, metric, first, second, order, margins.get(name, 0.0)) for name, metric in metrics.items()]
    yield from whole
    for column in sorted(first.samples.groups.keys() & second.samples.groups.keys()):
        groups = np.array(first.samples.groups[column], dtype=object)
        if (np.array(second.samples.groups[column], dtype=object)[order] != groups).any():
            raise UnpairedResultsError(f"samples have other groups of {column} in the two results: decode both with the same program")
        for value in sorted(set(first.samples.groups[column])):
            chosen = np.flatnonzero(groups == value)
            for pair in whole:
                yield _part(pair, chosen, f"{column}={value}")


def _part(pair: PairedMetric, chosen: NDArray[np.int64], group: str) -> PairedMetric:
    """The metric of some of the samples; those that have no weight at all in either version are no samples of it."""
    weights = [None if each is None else each[chosen] for each in (pair.first_weight, pair.second_weight)]
    if any(each is not None and not each.sum() > 0 for each in weights):
        chosen, weights = chosen[:0], [None, None]
    return PairedMetric(
        pair.metric,
        pair.first[chosen],
        pair.second[chosen],
        weights[0],
        weights[1],
        pair.transform,
        pair.higher_is_better,
        pair.margin,
        group,
    )


def _pair(
    name: str, metric: Metric, first: ResultWithSamples, second: ResultWithSamples, order: NDArray[np.int64], margin: float
) -> PairedMetric:
    columns = metric.columns
    assert columns is not None
    other = second.result.metrics[name]
    if (other.columns, other.higher_is_better) != (columns, metric.higher_is_better):
        raise UnpairedResultsError(f"{name} is computed in another way in the second result: evaluate both versions with one suite")
    taken = [_column(each.samples, columns.numerator, name) for each in (first, second)]
    weights = [None if columns.weight is None else _column(each.samples, columns.weight, name) for each in (first, second)]
    return PairedMetric(
        metric=name,
        first=taken[0],
        second=taken[1][order],
        first_weight=weights[0],
        second_weight=None if weights[1] is None else weights[1][order],
        transform=columns.transform,
        higher_is_better=metric.higher_is_better,
        margin=margin,
    )


def _column(samples: SampleResults, column: str, metric: str) -> NDArray[np.float64]:
    if column not in samples.numbers:
        raise InvalidEvaluationError(f"{metric}: the results by sample have no column {column!r}; evaluate that version again")
    return samples.numbers[column]
