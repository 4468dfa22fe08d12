"""Two results are compared by sample, or refused: of other samples, another suite, split or group; never by a test of unpaired samples."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainhouse.workers.evaluation.__main__ import main, margins_of
from trainhouse.workers.evaluation.comparison import ComparisonLimits, Verdict
from trainhouse.workers.evaluation.errors import InvalidEvaluationError, UnpairedResultsError
from trainhouse.workers.evaluation.evaluation_report import write_report
from trainhouse.workers.evaluation.paired_results import ResultWithSamples, compare_results
from trainhouse.workers.evaluation.result import EvaluationResult, Metric
from trainhouse.workers.evaluation.sample_results import FILE_NAME, SampleResults, load_sample_results
from trainhouse.workers.evaluation.suites.accuracy_suites import classification
from trainhouse.workers.evaluation.suites.scored_samples import Intervals, grouping_of, metrics_of

HOW = Intervals(seed=1, confidence=0.95, resamples=999)
LIMITS = ComparisonLimits(resamples=999)
SAMPLES = 800


def evaluated(name: str, skill: float, *, order: "np.ndarray | None" = None, lang: str = "en", **more: Any) -> ResultWithSamples:
    """A version whose outputs are as good as `skill`; both versions' noise is mostly the samples' own."""
    rng = np.random.default_rng(5)
    targets = rng.integers(0, 2, SAMPLES)
    noise = rng.normal(0, 1, (SAMPLES, 2)) + 0.2 * np.random.default_rng(len(name)).normal(0, 1, (SAMPLES, 2))
    keys = np.array([f"s{n}" for n in range(SAMPLES)])
    groups = np.array([lang if n % 3 else "fi" for n in range(SAMPLES)])
    groups[:10] = "eo"
    order = np.arange(SAMPLES) if order is None else order
    outputs = (noise + skill * np.eye(2)[targets])[order]
    scored = classification(outputs, targets[order], "logits", keys[order].tolist())
    samples = SampleResults(keys[order].tolist(), scored.columns, {"lang": groups[order].tolist()})
    content = samples.parquet()
    fields = {
        "suite": "digits", "kind": "classification", "version": hashlib.sha256(name.encode()).hexdigest(), "dataset": "d@sha256:1",
        "split": "test", "seed": 1, "batch_size": 32, "device_kind": "cpu", "samples": len(keys[order]),
        "metrics": metrics_of(scored, HOW) | {"size_bytes": Metric(value=5.0, samples=1)},
        "groups": {"lang": grouping_of(scored, groups[order].tolist(), "lang", 30, HOW)},
        "by_sample": hashlib.sha256(content).hexdigest(), "by_sample_bytes": len(content),
    }  # fmt: skip
    return ResultWithSamples(EvaluationResult(**(fields | more)), samples)


def stored(side: ResultWithSamples, folder: Path) -> Path:
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(side.samples.parquet())
    (folder / "result.json").write_bytes(side.result.canonical_json())
    return folder / "result.json"


def test_a_better_version_is_better_whatever_the_order_of_its_samples() -> None:
    good, base = evaluated("good", 2.5), evaluated("base", 1.5)
    found = compare_results(good, base, {}, LIMITS)
    assert found.verdict == Verdict.BETTER and found.groups_verdict == Verdict.TOO_FEW, "ten samples are too few"
    assert found.not_compared == ("size_bytes",)
    by_group = {each.group: each.verdict for each in found.entries if each.metric == "log_loss"}
    assert by_group == {"": "better", "lang=en": "better", "lang=fi": "better", "lang=eo": "too few samples"}
    shuffled = evaluated("base", 1.5, order=np.random.default_rng(1).permutation(SAMPLES))
    again = compare_results(good, shuffled, {}, LIMITS)
    figures = [(each.metric, each.group, each.low, each.p, each.verdict) for each in found.entries]
    assert figures == [(each.metric, each.group, each.low, each.p, each.verdict) for each in again.entries]
    worse = compare_results(base, good, {"accuracy": 0.5, "balanced_accuracy": 0.5, "log_loss": 9.0}, LIMITS)
    assert worse.verdict == Verdict.NOT_WORSE and compare_results(base, good, {}, LIMITS).verdict == Verdict.WORSE
    assert found.canonical_json() == compare_results(good, base, {}, LIMITS).canonical_json()


def test_results_of_other_samples_are_not_compared() -> None:
    whole, part = evaluated("a", 2.0), evaluated("b", 2.0, order=np.arange(SAMPLES - 7))
    with pytest.raises(UnpairedResultsError, match="7 samples are in the first result alone, 0 in the second alone"):
        compare_results(whole, part, {}, LIMITS)
    for change in ({"split": "dev"}, {"dataset": "d@sha256:2"}, {"suite": "letters"}):
        with pytest.raises(UnpairedResultsError, match=f"another {next(iter(change))} each"):
            compare_results(whole, evaluated("b", 2.0, **change), {}, LIMITS)
    with pytest.raises(UnpairedResultsError, match="other groups of lang"):
        compare_results(whole, evaluated("b", 2.0, lang="de"), {}, LIMITS)
    with pytest.raises(InvalidEvaluationError, match="margin of f1"):
        compare_results(whole, whole, {"f1": 0.1}, LIMITS)


def test_results_by_sample_are_those_of_the_document(tmp_path: Path) -> None:
    side = evaluated("a", 2.0)
    path = stored(side, tmp_path / "a")
    assert list(load_sample_results(path, side.result).keys) == list(side.samples.keys)
    (tmp_path / "a" / FILE_NAME).write_bytes(evaluated("b", 1.0).samples.parquet())
    with pytest.raises(InvalidEvaluationError, match="no file beside it"):
        load_sample_results(path, side.result)


@pytest.mark.parametrize(
    ("keys", "numbers", "reason"),
    [
        ([], [], "no sample was evaluated"),
        (["a", "a"], [1.0, 0.0], "'a' is there twice"),
        (["a", "b"], [1.0], "1 values of 2 samples"),
        (["a", "b"], [1.0, float("nan")], "correct of sample 'b' is nan"),
    ],
)
def test_results_by_sample_that_are_none_are_refused(keys: list[str], numbers: list[float], reason: str) -> None:
    with pytest.raises(InvalidEvaluationError, match=reason):
        SampleResults(keys, {"correct": np.array(numbers)})
    with pytest.raises(InvalidEvaluationError, match="no Parquet file"):
        SampleResults.of_parquet(b"PAR0", "x.parquet")


def test_the_commands_compare_and_report_from_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, base = (stored(evaluated(n, skill), tmp_path / n) for n, skill in (("good", 2.5), ("base", 1.5)))
    other = stored(evaluated("c", 2.0, split="dev"), tmp_path / "c")
    assert main(["compare", str(good), str(base), "--out", str(tmp_path / "c.json")]) == 1  # the group of ten does not pass
    assert "verdict: better; groups: too few samples" in capsys.readouterr().out and (tmp_path / "c.json").exists()
    assert main(["compare", str(good), str(other)]) == 2 and "another split" in capsys.readouterr().err
    assert main(["compare", str(good), str(tmp_path / "none.json")]) == 2
    assert main(["report", str(good), str(base), str(other), "--out", str(tmp_path / "r"), "--title", "<b>a|b</b>"]) == 0
    text, page = (tmp_path / "r" / "report.md").read_text(), (tmp_path / "r" / "report.html").read_text()
    assert r"# \<b\>a\|b\</b\>" in text and "too few samples, fewer than 30" in text and "It is not compared: the results are of" in text
    assert "<h1>&lt;b&gt;a|b&lt;/b&gt;</h1>" in page and "<td>better</td>" in page
    again = write_report(good, [base, other], tmp_path / "r2", "<b>a|b</b>", {}, alpha=0.05, least=100, seed=0)
    assert again[0].read_text() == text


def test_margins_are_numbers() -> None:
    assert margins_of(["accuracy=0.01", "log_loss=1"]) == {"accuracy": 0.01, "log_loss": 1.0}
    with pytest.raises(InvalidEvaluationError, match="METRIC=LOSS"):
        margins_of(["accuracy"])
