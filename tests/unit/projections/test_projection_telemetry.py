"""Metrics and log lines straight to columns: every value once, gaps and odd numbers as they are, damage told apart."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables.senders import senders_of
from trainhouse.events.model.telemetry import LogLines, StepMetrics
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.ingest.builders.log_rows import LogsBuilder
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.builders.step_metrics import MetricsBuilder
from trainhouse.projections.record import Record

LETTERS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.uint32()),
        ("offset", pa.uint64()),
        ("version", pa.uint8()),
        ("seen_by", pa.string()),
        ("reason", pa.string()),
        ("job_id", pa.string()),
        ("event_id", pa.string()),
        ("size_bytes", pa.uint64()),
        ("head", pa.string()),
        pa.field("time", pa.timestamp("ms", tz="UTC")),
    ]
)
OF: dict[str, Any] = {"job_id": "j", "attempt": 0, "epoch": 0, "rank": 0, "node_id": "n"}


def metrics(start: int, end: int, **columns: tuple[float | None, ...]) -> StepMetrics:
    points = range(start, end)
    values = columns or {"v": tuple(map(float, points))}
    steps = tuple(points)
    return StepMetrics(start=start, end=end, steps=steps, times_ms=steps, offsets=steps, metrics=values, **OF)


def lines(start: int, end: int) -> LogLines:
    points = range(start, end)
    return LogLines(start=start, end=end, stream="stderr", lines=tuple(map(str, points)), offsets=tuple(points), read_at_ms=5, **OF)


def records(*events: StepMetrics | LogLines) -> list[Record]:
    return [Record(topics.METRICS, 0, n, 0, None, encode(envelope_of(e, id=str(n), source="t", now_ms=1))) for n, e in enumerate(events)]


def build(*events: StepMetrics | LogLines, marks: dict[str, int] | None = None) -> Built:
    given_records = records(*events)
    builder = MetricsBuilder(LETTERS, senders_of()) if isinstance(events[0], StepMetrics) else LogsBuilder(LETTERS, senders_of())
    before = dict.fromkeys(builder.streams(given_records), 0) | (marks or {})
    return builder.build(given_records, before)


def test_none_makes_no_row_and_nan_does() -> None:
    table = build(metrics(0, 3, loss=(1.0, None, math.nan), lr=(math.inf, -math.inf, 0.0))).tables["step_metrics"]
    found = [(r["metric"], r["step"], r["value"]) for r in table.to_pylist()]
    assert found[0] == ("loss", 0, 1.0)
    assert found[1][:2] == ("loss", 2)
    assert math.isnan(found[1][2])
    assert found[2:] == [("lr", 0, math.inf), ("lr", 1, -math.inf), ("lr", 2, 0.0)]


def test_a_record_knows_its_source_and_its_identity() -> None:
    rows = build(metrics(0, 1), metrics(1, 3)).tables["step_metrics"].to_pylist()
    found = [(r["source_offset"], r["step"], r["job_id"], r["node_id"]) for r in rows]
    assert found == [(0, 0, "j", "n"), (1, 1, "j", "n"), (1, 2, "j", "n")]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=12))
def test_however_a_file_is_cut_each_point_is_stored_once(cuts: list[tuple[int, int]]) -> None:
    # A tailer never leaves a gap: each cut begins at or before what is known, wherever it ends.
    reached, events, log_events = 0, [], []
    for back, length in cuts:
        start = max(0, reached - back)
        events.append(metrics(start, start + length))
        log_events.append(lines(start, start + length))
        reached = max(reached, start + length)
    built = build(*events)
    assert built.tables["step_metrics"].column("step").to_pylist() == list(range(reached))
    assert built.marks == {"j/0/0/metrics": reached}
    logs = build(*log_events)
    assert logs.tables["logs"].column("offset").to_pylist() == list(range(reached))
    assert logs.marks == {"j/0/0/stderr": reached}


def test_marks_from_before_trim_and_another_stream_is_untouched() -> None:
    built = build(metrics(0, 10), marks={"j/0/0/metrics": 7})
    assert built.tables["step_metrics"].column("step").to_pylist() == [7, 8, 9]
    assert build(metrics(0, 5), marks={"j/0/0/metrics": 7}).tables == {}
    other = metrics(0, 2).model_copy(update={"epoch": 1})
    assert build(metrics(0, 10), other).marks == {"j/0/0/metrics": 10, "j/1/0/metrics": 2}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"steps":[0,1]', b'"steps":[0]'),
        (b'"steps":[0,1]', b'"steps":[-1,1]'),
        (b'"steps":[0,1]', b'"steps":[[0],[1]]'),
        (b'"times_ms":[0,1]', b'"times_ms":[[0],[1]]'),
        (b'"times_ms":[0,1]', b'"times_ms":1'),
        (b'"v":[0.0,1.0]', b'"v":[[0.0],[1.0]]'),
        (b'"v":[0.0,1.0]', b'"v":["x",1.0]'),
        (b'"v":[0.0,1.0]', b'"v":[0.0]'),
        (b'"v":[0.0,1.0]', b'"v":{"a":1}'),
        (b'"rank":0', b'"rank":"0"'),
        (b'"rank":0', b'"rank":true'),
        (b'"job_id":"j"', b'"job_id":5'),
        (b'"job_id":"j",', b""),
        (b'"end":2', b'"end":-2'),
        (b"step.v1", b"step.v2"),
    ],
)
def test_a_damaged_record_is_a_dead_letter_and_the_rest_goes_on(old: bytes, new: bytes) -> None:
    good = records(metrics(0, 2), metrics(0, 2))
    assert old in (good[0].value or b"")
    bad = Record(topics.METRICS, 0, 0, 0, None, (good[0].value or b"").replace(old, new))
    builder = MetricsBuilder(LETTERS, senders_of())
    both = [bad, good[1]]
    built = builder.build(both, dict.fromkeys(builder.streams(both), 0))
    assert built.unreadable == 1
    assert built.tables["dead_letters_rows"].num_rows == 1
    assert built.tables["step_metrics"].column("step").to_pylist() == [0, 1]


@pytest.mark.parametrize(("old", "new"), [(b'"lines":["0","1"]', b'"lines":{"0":1,"1":1}'), (b'"offsets":[0,1]', b'"offsets":"01"')])
def test_lines_that_are_no_list_are_damage(old: bytes, new: bytes) -> None:
    good = records(lines(0, 2), lines(0, 2))
    assert old in (good[0].value or b"")
    both = [Record(topics.LOGS, 0, 0, 0, None, (good[0].value or b"").replace(old, new)), good[1]]
    builder = LogsBuilder(LETTERS, senders_of())
    built = builder.build(both, dict.fromkeys(builder.streams(both), 0))
    assert built.unreadable == 1 and built.tables["logs"].column("line").to_pylist() == ["0", "1"]


def test_offsets_that_do_not_ascend_are_damage_only_where_they_matter() -> None:
    event = metrics(0, 3).model_copy(update={"offsets": (2, 1, 0)})
    assert build(event, marks={"j/0/0/metrics": 1}).unreadable == 1
