"""A request of points: the same however often it comes, and bounded in each of its records."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables.senders import senders_of
from trainhouse.events import StepMetrics, envelope_of
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.points import MAX_CELLS
from trainhouse.gateway.mlflow.artifact_routes import cleaned, placed
from trainhouse.gateway.mlflow.bodies import LogBatch, Metric
from trainhouse.gateway.mlflow.errors import MlflowError
from trainhouse.gateway.mlflow.points import records_of_request
from trainhouse.gateway.mlflow.schemas import files_at, number
from trainhouse.projections.ingest.builders.step_metrics import MetricsBuilder
from trainhouse.projections.record import Record

METRICS = st.lists(
    st.builds(
        Metric,
        key=st.sampled_from(["loss", "acc", "lr"]),
        value=st.floats(allow_nan=True),
        timestamp=st.integers(0, 3),
        step=st.integers(0, 3),
    ),
    max_size=40,
)


def ingested(records: list[StepMetrics]) -> list[tuple[str, int, float]]:
    """The rows that ingestion makes of records that come one by one."""
    marks: dict[str, int] = {}
    rows: list[tuple[str, int, float]] = []
    for n, event in enumerate(records):
        value = encode(envelope_of(event, id=f"e{n}", source="test", now_ms=0))
        record = Record("trainhouse.metrics", 0, n, 0, b"k", value)
        builder = MetricsBuilder(pa.schema([]), senders_of())
        before = {s: marks.get(s, 0) for s in builder.streams([record])}
        built = builder.build([record], before)
        marks |= built.marks
        points = built.tables.get("step_metrics")
        rows += [(r["metric"], r["step"], r["value"]) for r in points.to_pylist()] if points is not None else []
    return rows


@given(METRICS)
def test_every_point_is_a_row_and_a_repeat_adds_none(metrics: list[Metric]) -> None:
    records = records_of_request("r", metrics)
    assert records == records_of_request("r", metrics) or any(math.isnan(m.value) for m in metrics)
    expected = sorted(repr((m.key, m.step, m.value)) for m in metrics)
    assert sorted(map(repr, ingested(records))) == expected
    assert sorted(map(repr, ingested([*records, *records_of_request("r", metrics)]))) == expected


def wide(count: int) -> list[Metric]:
    """Points that each have a row and a column of their own: the worst that a batch can hold."""
    return [Metric(key=f"m{n}", value=n, timestamp=n, step=n) for n in range(count)]


def test_a_sparse_batch_is_cut_into_bounded_records() -> None:
    records = records_of_request("r", wide(1000))
    assert len(records) > 1 and records[-1].end == 1000 and len({r.stream for r in records}) == 1
    assert all(len(r.steps) * len(r.metrics) <= MAX_CELLS for r in records)
    assert all(len(encode(envelope_of(r, id="e", source="s", now_ms=0))) < 1_000_000 for r in records)


def test_two_gateways_that_work_at_one_request_add_it_once() -> None:
    first, second, *_ = records_of_request("r", wide(300))
    a, b = (first, second), (first, second)
    for interleaved in ([*a, *b], [a[0], b[0], a[1], b[1]], [a[0], b[0], b[1], a[1]], [a[0], *b]):
        assert len(ingested(interleaved)) == second.end


def test_other_points_are_another_stream() -> None:
    base = {"key": "loss", "value": 1.0, "timestamp": 5, "step": 1}
    streams = {
        records_of_request("r", [Metric(**(base | change))])[0].stream
        for change in ({}, {"step": 2}, {"value": 2.0}, {"timestamp": 6}, {"key": "l"})
    }
    assert len(streams) == 5


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_as_protocol_buffers_write_them(word: str) -> None:
    body = LogBatch.model_validate({"run_uuid": "r1", "metrics": [{"key": "a", "value": word, "timestamp": "1700000000000", "step": "7"}]})
    assert (body.run_id, body.metrics[0].step, number(body.metrics[0].value)) == ("r1", 7, word)


@pytest.mark.parametrize("change", [{"step": -1}, {"timestamp": -5}, {"key": ""}, {"key": "x" * 251}, {"key": "a\x00b"}, {"value": "much"}])
def test_points_that_cannot_be_kept_are_refused(change: dict[str, object]) -> None:
    point = {"key": "a", "value": 1, "timestamp": 1, "step": 1} | change
    with pytest.raises(ValueError):
        LogBatch.model_validate({"run_id": "r", "metrics": [point]})


def test_a_batch_is_bounded() -> None:
    point = {"key": "a", "value": 1, "timestamp": 1, "step": 1}
    with pytest.raises(ValueError):
        LogBatch.model_validate({"run_id": "r", "metrics": [point] * 1001})
    with pytest.raises(ValueError, match="at most 1000"):
        LogBatch.model_validate({"run_id": "r", "metrics": [point] * 1000, "tags": [{"key": "a", "value": "b"}]})


def test_places_of_artifacts_stay_within_their_run() -> None:
    assert placed("12/run-1/artifacts/a/b.txt") == ("run-1", "a/b.txt") and placed("12/run-1/artifacts") == ("run-1", "")
    for bad in (
        "12/run-1/artifacts/../x",
        "12/run-1/artifacts//x",
        "12/run-1/x",
        "x/run/artifacts/y",
        "12/../artifacts/y",
        "12/r/artifacts/a\\b",
    ):
        with pytest.raises(MlflowError):
            placed(bad)
    with pytest.raises(MlflowError):
        cleaned("/etc/passwd")


def test_folders_of_artifacts_follow_from_paths() -> None:
    paths = [("a/b.txt", 1), ("a/c/d.txt", 2), ("e.txt", 3)]
    assert files_at("", paths) == [{"path": "a", "is_dir": True}, {"path": "e.txt", "is_dir": False, "file_size": 3}]
    assert files_at("a", paths) == [{"path": "a/b.txt", "is_dir": False, "file_size": 1}, {"path": "a/c", "is_dir": True}]
    assert files_at("e", paths) == []
