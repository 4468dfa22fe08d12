"""Rows of verdicts, alerts and minutes: typed columns under common names, and the same rows for the same record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainhouse.events.model.alert import AlertFired, AlertResolved
from trainhouse.events.model.base import Event, event_class
from trainhouse.events.model.job import JobReviewed
from trainhouse.events.model.node import NodeHeartbeat, SignatureRefused
from trainhouse.events.model.repair import PartitionHalted
from trainhouse.events.model.verdict import FailureBlamed, GangHung, VerdictLifted
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.projections.ingest.lanes import BEATS, FACTS
from trainhouse.projections.record import Record, RowsFunction
from trainhouse.projections.rows import minutes, one_to_one, verdict_rows
from trainhouse.projections.rows.lines import event_lines
from trainhouse.projections.rows.lines.summary import summarize
from trainhouse.projections.store.tables import TABLES

NOW = 1_800_000_000_000
SAMPLES = Path(__file__).parents[3] / "events" / "contract" / "samples"
GANG: dict[str, Any] = {"pool": "p", "job_id": "j", "attempt": 2, "epoch": 3, "at_ms": NOW}


def rows_of(function: RowsFunction, event: Event, topic: str) -> list[tuple[str, dict[str, Any]]]:
    envelope = envelope_of(event, id="e1", source="test", now_ms=NOW)
    record = Record(topic, 0, 7, NOW, b"k", b"{}")
    once, again = list(function(envelope, record)), list(function(envelope, record))
    assert once == again and {r.table for r in once} <= set(TABLES)
    return [(r.table, r.values) for r in once]


@pytest.mark.parametrize("kind", [k for k in TOPIC_EVENTS[topics.VERDICTS] if k is not JobReviewed], ids=lambda kind: kind.__name__)
def test_every_verdict_is_one_row_of_the_same_columns(kind: type[Event]) -> None:
    sample = json.loads((SAMPLES / f"{kind.event_type}.json").read_text())
    event = event_class(kind.event_type).model_validate(sample["data"])
    assert verdict_rows.rows in FACTS[topics.VERDICTS]
    [(table, row)] = rows_of(verdict_rows.rows, event, topics.VERDICTS)
    [(_, other)] = rows_of(verdict_rows.rows, GangHung(**GANG, silent_s=9, limit_s=3), topics.VERDICTS)
    assert (table, row["type"], list(row)) == ("verdicts_rows", kind.event_type, list(other))
    assert row["summary"] and not row["summary"].startswith(kind.__name__), "a person reads a sentence, not a class"
    # Of what is not signed nothing is believed, its pool neither; a partition has many pools.
    assert bool(row["pool"]) == (kind not in (SignatureRefused, PartitionHalted))


def test_a_review_is_a_line_of_its_jobs_story_and_no_verdict() -> None:
    event = JobReviewed.model_validate(json.loads((SAMPLES / f"{JobReviewed.event_type}.json").read_text())["data"])
    assert rows_of(verdict_rows.rows, event, topics.VERDICTS) == []
    [(table, row)] = rows_of(event_lines.rows, event, topics.VERDICTS)
    assert table == "events_rows" and row["summary"] == "goes on after its review, by ada: the data is mended"


def test_a_verdict_has_its_number_and_what_it_was_held_against() -> None:
    [(_, row)] = rows_of(
        verdict_rows.rows, GangHung(**GANG, silent_s=9, limit_s=3, ranks=(4, 1), step=7, evidence="quiet"), topics.VERDICTS
    )
    assert (row["job_id"], row["attempt"], row["epoch"], row["ranks"], row["step"]) == ("j", 2, 3, [4, 1], 7)
    assert (row["value"], row["limit"], row["evidence"], row["at"]) == (9, 3, "quiet", NOW)


def test_blame_names_its_culprit() -> None:
    blamed = FailureBlamed(**GANG, category="DATA", rule="bad-shard", summary="cannot read", shard="s3://d/7", mine=True, lost_steps=5)
    [(_, row)] = rows_of(verdict_rows.rows, blamed, topics.VERDICTS)
    assert (row["category"], row["rule"], row["shard"], row["mine"], row["lost_steps"]) == ("DATA", "bad-shard", "s3://d/7", 1, 5)
    assert (row["summary"], row["node_id"], row["rank"]) == ("cannot read", "", None)
    assert "blamed on DATA" in summarize(blamed)


def test_a_lift_says_what_it_takes_back() -> None:
    lifted = VerdictLifted(pool="p", at_ms=NOW, of="trainhouse.gang.hung.v1", job_id="j", epoch=3, since_ms=NOW - 5)
    [(_, row)] = rows_of(verdict_rows.rows, lifted, topics.VERDICTS)
    assert (row["lifted"], row["job_id"], row["epoch"], row["since"]) == ("trainhouse.gang.hung.v1", "j", 3, NOW - 5)


def test_an_alert_has_two_facts_with_one_name() -> None:
    common = {
        "rule": "r",
        "key": "pool=p",
        "severity": "WARNING",
        "labels": {"pool": "p"},
        "summary": "s",
        "since_ms": NOW - 9,
        "at_ms": NOW,
    }
    [(table, fired)] = rows_of(one_to_one.alerts, AlertFired.model_validate(common | {"value": 3, "limit": 2}), topics.ALERTS)
    [(_, resolved)] = rows_of(one_to_one.alerts, AlertResolved.model_validate(common), topics.ALERTS)
    assert one_to_one.alerts in FACTS[topics.ALERTS]
    assert (table, fired["fact"], fired["value"], fired["limit"], resolved["fact"]) == ("alerts_rows", "fired", 3, 2, "resolved")
    assert [fired[n] for n in ("rule", "key", "since")] == [resolved[n] for n in ("rule", "key", "since")]


def beat(at_ms: int, interval_s: float = 1) -> NodeHeartbeat:
    ranks = [
        {"rank": rank, "device_id": f"d{rank}", "pid": 1, "state": state, "step": 5 + rank, "data_wait_s": 2.0 + rank}
        for rank, state in ((0, "RUNNING"), (1, "RUNNING"), (2, "EXITED"))
    ]
    devices = [{"device_id": f"d{n}", "utilization_pct": pct} for n, pct in enumerate((90.0, 70.0, 2.0, None))]
    about = {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p", "sequence": 1, "at_ms": at_ms, "interval_s": interval_s}
    part = {"job_id": "j", "attempt": 1, "epoch": 2, "ranks": ranks}
    return NodeHeartbeat.model_validate(about | {"attempts": [part], "devices": devices, "spool_lag_bytes": 11})


def test_a_heartbeat_goes_under_its_second_of_its_minute() -> None:
    assert minutes.rows in BEATS[topics.HEARTBEATS]
    [(nodes, node), (parts, part)] = rows_of(minutes.rows, beat(NOW + 70_900), topics.HEARTBEATS)
    assert (nodes, node["minute"], node["devices"], node["devices_held"], node["spool_lag_bytes"]) == (
        "node_minutes_rows",
        NOW + 60_000,
        4,
        2,
        11,
    )
    assert node["utilization"] == {10: 54.0}, "all devices that tell, in use or not"
    assert (parts, part["job_id"], part["epoch"], part["ranks"], part["step"]) == ("attempt_minutes_rows", "j", 2, 2, 7)
    assert part["utilization"] == {10: 80.0}, "those that its ranks hold"
    assert part["data_wait_s"] == {0: 2.0, 1: 3.0, 2: 4.0}


def test_of_many_heartbeats_one_in_ten_seconds_is_taken() -> None:
    taken = [n for n in range(60) if rows_of(minutes.rows, beat(NOW + 1000 * n + 37), topics.HEARTBEATS)]
    assert taken == [0, 10, 20, 30, 40, 50]
    slow = [n for n in range(0, 60, 15) if rows_of(minutes.rows, beat(NOW + 1000 * n, interval_s=15), topics.HEARTBEATS)]
    assert slow == [0, 15, 30, 45]
