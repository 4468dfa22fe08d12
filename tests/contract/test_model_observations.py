"""Observations of models in service as SQL has them, and the rules of alerts over them: the real builders, the real embedded engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.registry_requests import Registry, evaluated
from tests.support.tables.alert_tables import DAY_MS, HOUR_MS, Tables, tables_in
from trainhouse.events import Event, ModelGate, ModelGateApplied, PredictionsObserved, ReferenceRecorded, envelope_of
from trainhouse.events.model.dataset import DatasetVersionPublished
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_gate import OnDrift
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.projections.record import Record
from trainhouse.workers.evaluation.drift import sketch_of

NOW_MS = 1_795_000_000_000
START_MS = NOW_MS - 40 * DAY_MS
RNG = np.random.default_rng(7)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with tables_in(tmp_path / "clickhouse") as made:
        yield made


def models(tables: Tables, champions: Sequence[int] = (1, 2), staging: Sequence[int] = (3,), **gate: Any) -> Registry:
    """Model vision/resnet in the tables: champions one after another, a version in staging, and a gate."""
    registry = Registry(now_ms=START_MS)
    for number in (*champions, *staging):
        registry.register(number)
        if number == min(champions):
            registry.ask(ModelGateApplied(project="vision", name="resnet", user="ada", gate=ModelGate(approvals=0, **gate)))
        registry.ask(evaluated(number, 0.9, metrics={"accuracy": {"value": 0.9, "low": 0.88, "high": 0.92}}))
        if number in champions:
            registry.promote(number)
    tables.put(topics.MODEL_HISTORY, [each for each in registry.decisions if isinstance(each, ModelDecision)])
    return registry


def window(version: int, n: int, **fields: Any) -> PredictionsObserved:
    """The observation of an hour; the last one ends an hour ago."""
    of = {"project": "vision", "name": "resnet", "version": version, "count": 0}
    start_ms = NOW_MS - (n + 2) * HOUR_MS
    return PredictionsObserved.model_validate(of | {"window_start_ms": start_ms, "window_end_ms": start_ms + HOUR_MS} | fields)


def ages(mean: float, count: int = 2000) -> dict[str, FieldProfile]:
    return {"json.age": FieldProfile(samples=count, numbers=sketch_of(RNG.normal(mean, 10, count)))}


def outcomes(share: float, count: int, prefix: str = "p") -> dict[str, float]:
    return {f"{prefix}-{n}": float(n < round(share * count)) for n in range(count)}


def records(*sent: tuple[str, Event]) -> list[Record]:
    """Records of observations, with the ids of their events."""
    return [
        Record(topics.OBSERVATIONS, 0, n, NOW_MS, b"", encode(envelope_of(event, id=event_id, source="tests", now_ms=NOW_MS)))
        for n, (event_id, event) in enumerate(sent)
    ]


def test_each_window_and_each_label_counts_once_also_days_late(tables: Tables) -> None:
    models(tables)
    first = window(2, 3, count=100, inputs=ages(40, 100), outcomes={"accuracy": outcomes(0.5, 10)})
    late = window(2, 3, outcomes={"accuracy": {"p-9": 1.0, "p-10": 1.0}})
    for n in range(2):
        tables.put_records(records(("w-1", first), ("w-1", first), ("w-2", late)))
    (row,) = tables.ask("SELECT * FROM model_quality WHERE version = 2", {})
    assert (row["predictions"], row["labels"]) == (100, 11)
    assert row["live"] == pytest.approx(7 / 11), "p-9 was labelled anew"
    assert (row["stage"], row["offline"], row["offline_low"], row["suite"]) == ("champion", 0.9, 0.88, "accuracy")
    windows = tables.ask("SELECT event_id, predictions, labels, refusal FROM model_observations ORDER BY event_id", {})
    assert [(each["event_id"], each["predictions"], each["labels"], each["refusal"]) for each in windows] == [("w-1", 100, 10, ""), ("w-2", 0, 2, "")]


def test_champion_and_staging_stand_side_by_side(tables: Tables) -> None:
    models(tables)
    tables.put(topics.OBSERVATIONS, [window(version, 1, outcomes={"accuracy": outcomes(share, 100)}) for version, share in ((2, 0.8), (3, 0.9))], NOW_MS)
    rows = tables.ask("SELECT version, stage, live, champion, champion_live FROM model_quality ORDER BY version", {})
    assert [tuple(each.values()) for each in rows] == [(2, "champion", 0.8, 2, 0.8), (3, "staging", 0.9, 2, 0.8)]


def test_what_kafka_takes_and_cannot_be_counts_nowhere_and_says_why(tables: Tables) -> None:
    models(tables)
    tables.put(topics.OBSERVATIONS, [window(9, 1, outcomes={"accuracy": {"p": 1.0}})], NOW_MS)
    assert tables.ask("SELECT * FROM model_quality", {}) == []
    (unknown,) = tables.ask("SELECT refusal FROM model_observations", {})
    assert "no such version" in unknown["refusal"]
    tables.put_records(records(("future", window(2, -3, count=1))))
    (letter,) = tables.ask("SELECT reason FROM dead_letters_rows", {})
    assert "ahead of now" in letter["reason"] and "set the sender's clock" in letter["reason"]


def published(number: int, at_ms: int) -> DatasetVersionPublished:
    about = {"dataset": "imagenet", "project": "vision", "sha256": f"{number:x}" * 64, "manifest": "m"}
    return DatasetVersionPublished.model_validate(about | {"published_at_ms": at_ms})
