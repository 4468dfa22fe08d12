"""The document of a result: strict, finite, and the same bytes for the same numbers."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.result import EvaluationResult, Metric, SampleColumns, load_result, read_result

HASH = "ab" * 32


def document(**more: Any) -> dict[str, Any]:
    return {
        "suite": "digits",
        "kind": "classification",
        "version": HASH,
        "dataset": f"digits@sha256:{HASH}",
        "split": "test",
        "seed": 1,
        "batch_size": 32,
        "device_kind": "cpu",
        "samples": 100,
        "metrics": {"accuracy": {"value": 0.9, "low": 0.85, "high": 0.94, "samples": 100, "columns": {"numerator": "correct"}}},
        "by_sample": HASH,
    } | more


def refusal(**more: Any) -> str:
    with pytest.raises(InvalidEvaluationError) as caught:
        read_result(json.dumps(document(**more)).encode(), "a.json")
    return str(caught.value)


def test_a_result_is_read_as_it_was_written_and_is_named_by_its_bytes(tmp_path: Path) -> None:
    made = EvaluationResult.model_validate_json(json.dumps(document()))
    assert made.metrics["accuracy"] == Metric(value=0.9, low=0.85, high=0.94, samples=100, columns=SampleColumns(numerator="correct"))
    path = tmp_path / "result.json"
    path.write_bytes(made.canonical_json())
    assert load_result(path) == made and load_result(path).sha256 == made.sha256
    other = dict(reversed(document().items()))
    assert read_result(json.dumps(other).encode()).sha256 == made.sha256


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(number: float) -> None:
    reason = refusal(metrics={"accuracy": {"value": number, "samples": 5}})
    assert "a.json" in reason and "undefined" in reason, reason
    with pytest.raises(ValueError, match="finite"):
        Metric(value=number, samples=5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metrics": {}}, "metrics"),
        ({"metrik": {}}, "metrik"),
        ({"version": "1.0.0"}, "version"),
        ({"samples": "100"}, "samples"),
        ({"samples": -1}, "samples"),
        ({"batch_size": 0}, "batch_size"),
        ({"by_sample": None}, "by_sample is missing"),
        ({"undefined": {"accuracy": "why"}}, "not both"),
        ({"metrics": {"accuracy": {"value": 0.9, "low": 0.95, "high": 0.94, "samples": 100}}}, "above high"),
        ({"groups": {"sex": {"least_samples": 30, "groups": {"f": {"samples": 3, "too_few": True, "metrics": {
            "accuracy": {"value": 1.0, "samples": 3}}}}}}}, "too few samples"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**change)


def test_a_file_that_is_missing_or_no_document_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvaluationError, match=r"nothing\.json cannot be read"):
        load_result(tmp_path / "nothing.json")
    (tmp_path / "text.json").write_text("accuracy: 0.9")
    with pytest.raises(InvalidEvaluationError, match=r"text\.json"):
        load_result(tmp_path / "text.json")


def test_a_key_of_a_document_is_quoted_cut_and_without_control_characters() -> None:
    reason = refusal(metrics={"\x01" * 70_000: {"value": 0.5, "samples": 5}})
    assert reason.isprintable() and len(reason) < 1_024 and "docs/howto/evaluation.md" in reason
