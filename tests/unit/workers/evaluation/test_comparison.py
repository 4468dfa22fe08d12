"""Comparisons on the same samples: what two equal models get, what a true gain gets, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from trainhouse.workers.evaluation.comparison import (
    ComparisonLimits,
    PairedMetric,
    Verdict,
    bootstrap_differences,
    compare_metrics,
    overall,
)
from trainhouse.workers.evaluation.errors import InvalidEvaluationError

LIMITS = ComparisonLimits(resamples=999)


def correct(
    rng: np.random.Generator, samples: int, *, only_first: float = 0.02, only_second: float = 0.02, both: float = 0.8
) -> PairedMetric:
    """Two models that are right on the same sample with `both`, and each alone with its own probability."""
    drawn = rng.choice(4, samples, p=[both, only_first, only_second, 1 - both - only_first - only_second])
    return PairedMetric("accuracy", np.isin(drawn, (0, 1)).astype(float), np.isin(drawn, (0, 2)).astype(float))


def errors(rng: np.random.Generator, samples: int, gain: float = 0.0) -> PairedMetric:
    hardness = rng.gamma(2.0, 1.0, samples)
    first, second = hardness + rng.normal(0, 0.3, samples) - gain, hardness + rng.normal(0, 0.3, samples)
    return PairedMetric("loss", first, second, higher_is_better=False)


def one(pair: PairedMetric, limits: ComparisonLimits = LIMITS) -> Verdict:
    return compare_metrics([pair], limits)[0].verdict


@pytest.mark.parametrize("kind", [correct, errors])
def test_two_equal_models_are_seldom_called_better_or_worse(kind: "type[object]") -> None:
    false = sum(
        one(kind(np.random.default_rng([7, n]), 400)) in (Verdict.BETTER, Verdict.WORSE)  # type: ignore[call-arg, arg-type]
        for n in range(200)
    )
    # Of 200 at 5 %, more than 18 come with a probability below 1 %.
    assert false <= 18


def test_a_point_more_is_found_far_more_often_than_by_a_test_of_unpaired_shares() -> None:
    paired = unpaired = 0
    for n in range(60):
        pair = correct(np.random.default_rng([3, n]), 5000, only_first=0.025, only_second=0.015)
        paired += one(pair) == Verdict.BETTER
        a, b = pair.first.mean(), pair.second.mean()
        shared = (a + b) / 2
        unpaired += bool(2 * stats.norm.sf((a - b) / math.sqrt(2 * shared * (1 - shared) / 5000)) < 0.05)
    assert paired >= 48 and paired >= 2 * unpaired, (paired, unpaired)


def test_holm_holds_over_metrics_and_groups_together() -> None:
    false = 0
    for n in range(40):
        rng = np.random.default_rng([11, n])
        pairs = [replace(correct(rng, 300), group=f"g{k}") for k in range(5)]
        pairs += [replace(errors(rng, 300), group=f"g{k}") for k in range(5)]
        false += any(each.verdict in (Verdict.BETTER, Verdict.WORSE) for each in compare_metrics(pairs, LIMITS))
    assert false <= 6
    found = compare_metrics([errors(np.random.default_rng(1), 300, 0.1), errors(np.random.default_rng(2), 300)], LIMITS)
    assert all(each.p is not None and each.p_adjusted is not None and each.p_adjusted >= each.p for each in found)


def test_a_loss_within_the_margin_is_not_worse_and_beyond_it_is() -> None:
    slight = replace(errors(np.random.default_rng(1), 3000, gain=-0.02), margin=0.1)
    assert one(slight) == Verdict.NOT_WORSE and one(replace(slight, margin=0.0)) == Verdict.WORSE
    assert one(replace(slight, first=slight.second, second=slight.first)) == Verdict.BETTER
    loss = correct(np.random.default_rng(1), 3000, only_first=0.01, only_second=0.05)
    assert one(replace(loss, margin=0.001)) == Verdict.WORSE and one(replace(loss, margin=0.06)) == Verdict.NOT_WORSE


def test_what_samples_cannot_show_never_passes() -> None:
    few = correct(np.random.default_rng(1), 99)
    found = compare_metrics([few], LIMITS)[0]
    assert found.verdict == Verdict.TOO_FEW and found.p is None and not found.verdict.passes
    # Two models that are right everywhere: 150 samples do not show that one loses less than 1 % of all.
    alike = replace(few, first=np.ones(150), second=np.ones(150), margin=0.01)
    assert one(alike) == Verdict.TOO_FEW
    assert one(replace(alike, first=np.ones(2000), second=np.ones(2000))) == Verdict.NOT_WORSE
    assert compare_metrics([], LIMITS) == []


def test_losses_of_ratios_are_compared_in_the_metrics_unit() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(5, 200, 800).astype(float)
    nll = tokens * rng.normal(2.0, 0.2, 800)
    pair = PairedMetric("perplexity", nll - 0.05 * tokens, nll, tokens, tokens, "exp", False)
    found = compare_metrics([pair], LIMITS)[0]
    assert found.first == pytest.approx(math.exp(pair.first.sum() / tokens.sum()))
    assert found.verdict == Verdict.BETTER and found.low is not None and found.low <= found.difference <= (found.high or 0)
    # A margin is in points of perplexity: the same models the other way round lose 0.38.
    back = replace(pair, first=pair.second, second=pair.first)
    assert one(replace(back, margin=0.2)) == Verdict.WORSE and one(replace(back, margin=0.6)) == Verdict.NOT_WORSE


def test_counts_of_few_different_rows_are_drawn_as_samples_are() -> None:
    pair = correct(np.random.default_rng(5), 500, only_first=0.1, only_second=0.02)
    fast = bootstrap_differences(pair, LIMITS).round(6)
    noisy = replace(pair, first=pair.first + np.linspace(0, 1e-9, 500))
    slow = bootstrap_differences(noisy, LIMITS).round(6)
    assert fast.mean() == pytest.approx(slow.mean(), abs=0.002) and fast.std() == pytest.approx(slow.std(), rel=0.08)
    assert stats.ks_2samp(fast, slow).pvalue > 0.001


def test_equal_seeds_give_equal_results_whatever_else_is_compared() -> None:
    pair, other = errors(np.random.default_rng(1), 200, 0.03), correct(np.random.default_rng(2), 200)
    alone, beside = compare_metrics([pair], LIMITS)[0], compare_metrics([other, pair], LIMITS)[1]
    assert (alone.low, alone.high, alone.p) == (beside.low, beside.high, beside.p)
    assert compare_metrics([pair], replace(LIMITS, seed=9))[0].low != alone.low


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused_with_its_sample(number: float) -> None:
    pair = errors(np.random.default_rng(1), 200)
    pair.first[17] = number
    with pytest.raises(InvalidEvaluationError, match="loss: the value of sample 17 is"):
        compare_metrics([pair], LIMITS)


def test_values_of_other_samples_are_refused() -> None:
    pair = errors(np.random.default_rng(1), 200)
    with pytest.raises(InvalidEvaluationError, match="the same samples"):
        compare_metrics([replace(pair, second=pair.second[1:])], LIMITS)
    with pytest.raises(InvalidEvaluationError, match="weights"):
        compare_metrics([replace(pair, first_weight=np.zeros(200))], LIMITS)
    with pytest.raises(InvalidEvaluationError, match="margin"):
        compare_metrics([replace(pair, margin=math.nan)], LIMITS)
    for limits in ({"alpha": 0.0}, {"resamples": 10}, {"least_samples": 0}):
        with pytest.raises(InvalidEvaluationError):
            ComparisonLimits(**limits)  # type: ignore[arg-type]


def test_the_worst_verdict_counts() -> None:
    assert overall([Verdict.BETTER, Verdict.NOT_WORSE]) == Verdict.BETTER and overall([Verdict.NOT_WORSE]) == Verdict.NOT_WORSE
    assert overall([Verdict.BETTER, Verdict.TOO_FEW]) == Verdict.TOO_FEW == overall([])
    assert overall([Verdict.TOO_FEW, Verdict.WORSE, Verdict.BETTER]) == Verdict.WORSE


def test_samples_that_have_no_weight_count_for_nothing() -> None:
    rng = np.random.default_rng(8)
    tokens = np.zeros(400)
    tokens[:300] = rng.integers(5, 200, 300)
    right = np.floor(tokens * 0.7)
    pair = PairedMetric("token_accuracy", right + (tokens > 100), right + (tokens % 2), tokens, tokens)
    alone = replace(pair, first=pair.first[:300], second=pair.second[:300], first_weight=tokens[:300], second_weight=tokens[:300])
    assert compare_metrics([pair], LIMITS) == compare_metrics([alone], LIMITS)
    assert compare_metrics([pair], LIMITS)[0].samples == 300


@pytest.mark.parametrize(("of_first", "of_second"), [(1, 1), (12, 12), (200, 1), (3, 200)])
def test_few_samples_with_weight_are_too_few(of_first: int, of_second: int) -> None:
    first, second = (np.where(np.arange(200) < n, 5.0, 0.0) for n in (of_first, of_second))
    found = compare_metrics([PairedMetric("token_accuracy", 0.8 * first, 0.6 * second, first, second)], LIMITS)[0]
    assert (found.verdict, found.samples) == (Verdict.TOO_FEW, min(of_first, of_second))
    assert found.p is None and found.low is None and found.difference == pytest.approx(0.2)


def test_a_resample_without_a_value_gives_no_verdict() -> None:
    weight = np.where(np.arange(20) < 2, 5.0, 0.0)
    pair = PairedMetric("recall", weight * 0.8, weight * 0.6 + np.arange(20), weight, weight + 1)
    found = compare_metrics([pair], replace(LIMITS, least_samples=2))[0]
    assert found.verdict == Verdict.TOO_FEW and found.p is None
    rng = np.random.default_rng(1)
    high = PairedMetric("perplexity", rng.normal(700, 100, 200), rng.normal(700, 100, 200), transform="exp", higher_is_better=False)
    found = compare_metrics([high], LIMITS)[0]
    assert all(each is None or math.isfinite(each) for each in (found.p, found.low, found.high))
    with pytest.raises(InvalidEvaluationError, match="perplexity: the value of a version is inf"):
        compare_metrics([replace(high, first=high.first + 200)], LIMITS)


def test_losses_that_few_samples_show_never_pass() -> None:
    passed = 0
    for n in range(60):
        rng = np.random.default_rng([5, n])
        second = rng.normal(5, 1, 100)
        passed += one(PairedMetric("score", second - 10 * (rng.random(100) < 0.01), second, margin=0.05)).passes
    assert passed == 0, "the true loss is 0.1"
    gains = np.where(np.arange(100) < 1, 0.5, 0.0)
    assert one(PairedMetric("f1", 0.3 + gains, np.full(100, 0.3))) == Verdict.TOO_FEW
    # Where many samples differ, so many of them as little as that, the margin counts.
    ties = np.where(np.arange(400) < 40, np.random.default_rng(1).normal(0, 0.05, 400), 0.0)
    assert one(PairedMetric("f1", 0.5 + ties, np.full(400, 0.5), margin=0.01)) == Verdict.NOT_WORSE
