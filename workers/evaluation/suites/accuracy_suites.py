"""Classification, regression and language models: columns by sample from outputs and targets, and the rules of their metrics. Pure.

Holds: losses are computed in float64. Rates by target (selected, true and false positives) are of two classes, 0 and 1, and serve bias by
group.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.result import SampleColumns
from trainhouse.workers.evaluation.suites.scored_samples import MetricRule, Scored

_LEAST_PROBABILITY: Final = 1e-15
_SUM_TOLERANCE: Final = 1e-3


def classification(outputs: NDArray[np.float64], targets: NDArray[np.int64], kind: str, keys: Sequence[str]) -> Scored:
    """`outputs`: of shape (samples, classes), or (samples,) of labels; `targets`: classes, counted from 0. `kind`: logits, probabilities or
    labels. Raises InvalidEvaluationError: of targets that are all one class, of classes that the outputs do not have, of no numbers."""
    present = np.unique(targets)
    if len(present) < 2:
        raise InvalidEvaluationError(
            f"all {len(targets)} targets are class {present[0] if len(present) else '(none)'}: a classifier that always answers so is "
            "right everywhere; name a split with samples of two classes at least"
        )
    labels = kind == "labels"
    if outputs.ndim != (1 if labels else 2):
        shape = "(samples,)" if labels else "(samples, classes)"
        raise InvalidEvaluationError(f"outputs: {kind} have shape {outputs.shape}, not {shape}: correct `outputs`, or the model's program")
    _require_numbers(outputs, keys, "the output")
    if int(targets.min()) < 0 or (not labels and int(targets.max()) >= outputs.shape[1]):
        bad = int(np.flatnonzero((targets < 0) | (targets >= (targets.max() + 1 if labels else outputs.shape[1])))[0])
        raise InvalidEvaluationError(f"sample {keys[bad]!r} has the target {targets[bad]}, which the model has no class of: correct decode")
    predicted = outputs.astype(np.int64) if labels else outputs.argmax(1)
    correct = (predicted == targets).astype(np.float64)
    sizes = np.bincount(targets)
    columns = {
        "correct": correct,
        "prediction": predicted.astype(np.float64),
        "target": targets.astype(np.float64),
        "class_weight": len(targets) / (len(present) * sizes[targets].astype(np.float64)),
    }
    columns["weighted_correct"] = correct * columns["class_weight"]
    rules = {
        "accuracy": MetricRule(SampleColumns(numerator="correct")),
        "balanced_accuracy": MetricRule(SampleColumns(numerator="weighted_correct", weight="class_weight")),
    }
    undefined = dict[str, str]()
    if labels:
        undefined["log_loss"] = "the model's outputs are labels, without probabilities"
    else:
        columns["log_loss"] = -_log_probabilities(outputs, kind, keys)[np.arange(len(targets)), targets]
        rules["log_loss"] = MetricRule(SampleColumns(numerator="log_loss"), higher_is_better=False, unit="nats")
    by_group = dict[str, MetricRule]()
    if set(present.tolist()) == {0, 1} and (labels or outputs.shape[1] == 2):
        selected, positive = (predicted == 1).astype(np.float64), (targets == 1).astype(np.float64)
        columns |= {"selected": selected, "positive": positive, "negative": 1 - positive}
        columns |= {"true_positive": selected * positive, "false_positive": selected * (1 - positive)}
        by_group = {
            "selection_rate": MetricRule(SampleColumns(numerator="selected")),
            "true_positive_rate": MetricRule(SampleColumns(numerator="true_positive", weight="positive")),
            "false_positive_rate": MetricRule(SampleColumns(numerator="false_positive", weight="negative"), higher_is_better=False),
        }
    return Scored(columns, rules, by_group, undefined)


def regression(outputs: NDArray[np.float64], targets: NDArray[np.float64], keys: Sequence[str]) -> Scored:
    """`outputs` and `targets`: of shape (samples,). Raises InvalidEvaluationError."""
    if outputs.shape != targets.shape or outputs.ndim != 1:
        raise InvalidEvaluationError(f"outputs have shape {outputs.shape}, targets {targets.shape}: a regression has one number a sample")
    _require_numbers(outputs, keys, "the output")
    _require_numbers(targets, keys, "the target")
    error = outputs - targets
    columns = {"absolute_error": np.abs(error), "squared_error": error**2, "error": error, "prediction": outputs, "target": targets}
    rules = {
        "mean_absolute_error": MetricRule(SampleColumns(numerator="absolute_error"), higher_is_better=False),
        "root_mean_squared_error": MetricRule(SampleColumns(numerator="squared_error", transform="sqrt"), higher_is_better=False),
    }
    undefined = dict[str, str]()
    spread = (targets - targets.mean()) ** 2
    if spread.sum() > 0:
        columns["target_spread"] = spread
        columns["explained"] = spread - columns["squared_error"]
        rules["r_squared"] = MetricRule(SampleColumns(numerator="explained", weight="target_spread"))
    else:
        undefined["r_squared"] = "all targets are one number"
    return Scored(columns, rules, {}, undefined)


def language_model(nll: NDArray[np.float64], tokens: NDArray[np.float64], right: NDArray[np.float64], keys: Sequence[str]) -> Scored:
    """Of each sample the negative log likelihood in nats, summed over its tokens, the number of tokens, and how many the model would have
    chosen; of shape (samples,). Raises InvalidEvaluationError."""
    _require_numbers(nll, keys, "the loss")
    short = np.flatnonzero(tokens < 1)
    if len(short):
        raise InvalidEvaluationError(f"sample {keys[short[0]]!r} has no token to predict: a sample needs two tokens at least; leave it out")
    columns = {"nll": nll, "tokens": tokens, "right_tokens": right}
    rules = {
        "perplexity": MetricRule(SampleColumns(numerator="nll", weight="tokens", transform="exp"), higher_is_better=False),
        "nll_per_token": MetricRule(SampleColumns(numerator="nll", weight="tokens"), higher_is_better=False, unit="nats"),
        "token_accuracy": MetricRule(SampleColumns(numerator="right_tokens", weight="tokens")),
    }
    return Scored(columns, rules)


def _log_probabilities(outputs: NDArray[np.float64], kind: str, keys: Sequence[str]) -> NDArray[np.float64]:
    if kind == "logits":
        return np.asarray(log_softmax(outputs, axis=1), np.float64)
    off = np.flatnonzero((outputs < 0).any(1) | (np.abs(outputs.sum(1) - 1) > _SUM_TOLERANCE))
    if len(off):
        raise InvalidEvaluationError(
            f"the output of sample {keys[off[0]]!r} is no distribution: write `outputs: logits`, or correct the model"
        )
    return np.asarray(np.log(np.clip(outputs, _LEAST_PROBABILITY, 1.0)), np.float64)


def _require_numbers(values: NDArray[np.float64], keys: Sequence[str], label: str) -> None:
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if len(bad):
        raise InvalidEvaluationError(
            f"{label} of sample {keys[bad[0]]!r} is NaN or infinite ({len(bad)} such in all): the version is no candidate until its "
            "program or its weights are corrected"
        )
