"""`trainhouse models report`: from files alone, and only of the version that was meant."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhouse.cli.main import build
from trainhouse.workers.evaluation.result import EvaluationResult, Metric

VERSION = "ab" * 32  # pragma: allowlist secret


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    metrics = {"batch_1_p50_ms": Metric(value=3.5, samples=200, higher_is_better=False, unit="ms")}
    fields = {"suite": "speed", "kind": "latency", "version": VERSION, "seed": 0, "batch_size": 1, "device_kind": "cpu", "samples": 8}
    path.write_bytes(EvaluationResult(**fields, repeatable=False, metrics=metrics).canonical_json())  # type: ignore[arg-type]
    return path


def test_a_report_is_written_of_the_version_that_was_named(result: Path, tmp_path: Path) -> None:
    words = ["models", "report", "digits", "1.2.0", "--result", str(result), "--against", str(result), "--out", str(tmp_path / "r")]
    done = CliRunner().invoke(build("models"), [*words, "--content", VERSION[:8]])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r" / "report.md").read_text()
    assert text.startswith("# digits 1.2.0: speed\n") and "3.5 ms" in text and "It is not compared" in text
    assert (tmp_path / "r" / "report.html").read_text().count("<table>") == 2


def test_the_result_of_another_version_or_none_writes_nothing(result: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    for path, content, reason in ((result, "cd", "is of version"), (tmp_path / "none.json", "ab", "cannot be read")):
        words = ["models", "report", "digits", "1.2.0", "--result", str(path), "--out", str(out), "--content", content]
        done = CliRunner().invoke(build("models"), words)
        assert done.exit_code != 0 and reason in f"{done.output}{done.exception}" and not out.exists()
