"""Columns and metrics of suites, alone and by group; what no metric can be computed from is refused with its sample."""

import math
from typing import Any

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, r2_score

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.suites.accuracy_suites import classification, language_model, regression
from trainhouse.workers.evaluation.suites.latency import percentile_of
from trainhouse.workers.evaluation.suites.scored_samples import Intervals, grouping_of, metrics_of

HOW = Intervals(seed=1, confidence=0.95, resamples=999)


def two_classes(samples: int = 600) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    rng = np.random.default_rng(1)
    targets = (rng.random(samples) < 0.3).astype(np.int64)
    outputs = rng.normal(0, 1, (samples, 2)) + 1.5 * np.eye(2)[targets]
    groups = rng.choice(["de", "en", "fi"], samples, p=[0.3, 0.65, 0.05]).tolist()
    return outputs, targets, [f"s{n}" for n in range(samples)], groups


def test_a_classifiers_metrics_are_those_of_scikit_learn() -> None:
    outputs, targets, keys, _ = two_classes()
    found = metrics_of(classification(outputs, targets, "logits", keys), HOW)
    shares = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    assert found["accuracy"].value == pytest.approx(accuracy_score(targets, outputs.argmax(1)))
    assert found["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(targets, outputs.argmax(1)))
    assert found["log_loss"].value == pytest.approx(log_loss(targets, shares)) and not found["log_loss"].higher_is_better
    assert all(each.low is not None and each.high is not None and each.low < each.value < each.high for each in found.values())
    again = metrics_of(classification(shares, targets, "probabilities", keys), HOW)
    assert again["log_loss"].value == pytest.approx(found["log_loss"].value)
    labels = classification(outputs.argmax(1).astype(float), targets, "labels", keys)
    assert metrics_of(labels, HOW)["accuracy"] == found["accuracy"] and "without probabilities" in labels.undefined["log_loss"]


def test_rates_by_group_are_those_of_fairlearn() -> None:
    outputs, targets, keys, groups = two_classes()
    found = grouping_of(classification(outputs, targets, "logits", keys), groups, "lang", 30, HOW)
    rates = {"selection_rate": selection_rate, "true_positive_rate": true_positive_rate, "false_positive_rate": false_positive_rate}
    frame = MetricFrame(metrics=rates, y_true=targets, y_pred=outputs.argmax(1), sensitive_features=groups)
    large = [value for value, group in found.groups.items() if not group.too_few]
    for name in rates:
        for value in large:
            metric = found.groups[value].metrics[name]
            assert metric.value == pytest.approx(frame.by_group.loc[value, name])
            assert metric.low is not None and metric.high is not None and metric.low <= metric.value <= metric.high
        values = frame.by_group.loc[large, name]
        assert found.gaps[name].value == pytest.approx(values.max() - values.min())


def test_a_group_below_the_least_size_is_named_and_none_is_lost_in_a_resample() -> None:
    """fairlearn's bootstrap draws over all rows, so that a small group is missing in some of them (its issue 1441)."""
    outputs, targets, keys, groups = two_classes(400)
    groups = ["rare" if n < 3 else "other" if n < 40 else "most" for n in range(len(groups))]
    found = grouping_of(classification(outputs, targets, "logits", keys), groups, "kind", 30, HOW)
    assert found.groups["rare"].samples == 3 and found.groups["rare"].too_few and not found.groups["rare"].metrics
    assert not found.groups["other"].too_few and found.gaps["accuracy"].samples == 397
    small = grouping_of(classification(outputs, targets, "logits", keys), groups, "kind", 2, HOW)
    assert small.groups["rare"].metrics["accuracy"].low is not None
    ends = [end for group in small.groups.values() for metric in group.metrics.values() for end in (metric.low, metric.high)]
    assert all(end is not None and math.isfinite(end) for end in ends)


@pytest.mark.parametrize(
    ("outputs", "targets", "kind", "reason"),
    [
        (np.zeros((4, 2)), [1, 1, 1, 1], "logits", "all 4 targets are class 1"),
        (np.zeros((4, 2)), [0, 1, 2, 0], "logits", "'s2' has the target 2"),
        (np.zeros(4), [0, 1, 0, 1], "logits", r"shape \(4,\)"),
        (np.array([[0, 0], [0, math.nan], [0, 0], [0, 0]]), [0, 1, 0, 1], "logits", "'s1' is NaN or infinite"),
        (np.full((4, 2), 0.7), [0, 1, 0, 1], "probabilities", "'s0' is no distribution"),
    ],
)
def test_what_no_accuracy_follows_from_is_refused(outputs: np.ndarray, targets: list[int], kind: str, reason: str) -> None:
    with pytest.raises(InvalidEvaluationError, match=reason):
        classification(outputs, np.array(targets, np.int64), kind, ["s0", "s1", "s2", "s3"])


def test_a_regressions_metrics_and_targets_that_are_all_one_number() -> None:
    rng = np.random.default_rng(2)
    targets = rng.normal(5, 2, 300)
    outputs = targets + rng.normal(0, 0.5, 300)
    keys = [f"s{n}" for n in range(300)]
    found = metrics_of(regression(outputs, targets, keys), HOW)
    assert found["root_mean_squared_error"].value == pytest.approx(math.sqrt(((outputs - targets) ** 2).mean()))
    assert found["r_squared"].value == pytest.approx(r2_score(targets, outputs)) and found["r_squared"].higher_is_better
    assert "one number" in regression(outputs, np.full(300, 1.0), keys).undefined["r_squared"]
    for bad in (outputs[:, None], np.where(np.arange(300) == 9, math.inf, outputs)):
        with pytest.raises(InvalidEvaluationError):
            regression(bad, targets, keys)


def test_a_language_models_metrics_weigh_samples_by_their_tokens() -> None:
    nll, tokens, right = np.array([10.0, 300.0]), np.array([10.0, 100.0]), np.array([5.0, 20.0])
    found = metrics_of(language_model(nll, tokens, right, ["a", "b"]), HOW)
    assert found["perplexity"].value == pytest.approx(math.exp(310 / 110)) and found["token_accuracy"].value == pytest.approx(25 / 110)
    with pytest.raises(InvalidEvaluationError, match="'b' has no token"):
        language_model(nll, np.array([10.0, 0.0]), right, ["a", "b"])


def test_a_percentile_of_few_calls_has_no_upper_end() -> None:
    times = np.arange(1.0, 101.0)
    many: Any = percentile_of(times, 0.5, 0.95)
    assert many.low < many.value == 50.5 < many.high and many.unit == "ms"
    few = percentile_of(times, 0.99, 0.95)
    assert few.high is None and few.low is not None and few.low < few.value
