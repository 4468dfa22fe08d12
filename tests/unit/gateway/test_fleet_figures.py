"""What the fleet's figures decide without tables."""

from __future__ import annotations

from trainhouse.gateway.fleet.node_figures import rows_of, span
from trainhouse.gateway.fleet.trends import counted
from trainhouse.gateway.routes.lineage import job_of


def test_parts_of_a_span_begin_at_whole_minutes_and_end_after_now() -> None:
    since_s, part_s = span(1_000_000, 6, 36)
    assert part_s == 600 and since_s % 600 == 0 and since_s + 36 * part_s >= 1_000_000
    assert span(1_000_000, 1, 400)[1] == 60


def test_what_is_not_reported_is_null_and_never_0() -> None:
    rows = [
        {"node_id": "a", "part": 1, "value": 0.0},
        {"node_id": "a", "part": 2, "value": None},
        {"node_id": "a", "part": 9, "value": 5.0},
    ]
    assert rows_of(["a", "b"], rows, 3) == [{"node_id": "a", "values": [None, 0.0, None]}, {"node_id": "b", "values": [None, None, None]}]


def test_spans_are_counted_at_each_moment() -> None:
    spans = [{"began": 5, "ended": 20, "jobs": 2}, {"began": 15, "ended": None, "jobs": 1}, {"began": 99, "ended": None, "jobs": 7}]
    assert counted([0, 10, 20, 30], spans, "jobs") == [0, 2, 1, 1]
    assert counted([0, 10], [], "jobs") == [0, 0]


def test_things_of_a_lineage_are_of_a_job_or_of_none() -> None:
    assert [job_of(id) for id in ("job:j", "attempt:j/2", "checkpoint:j@7", "code:ab", "attempt:j/x", "checkpoint:7")] == [
        ("j", 0),
        ("j", 2),
        ("j", 7),
        None,
        None,
        None,
    ]
