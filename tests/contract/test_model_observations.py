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
from trainhouse.events.model.alert import AlertFired
from trainhouse.events.model.dataset import DatasetVersionPublished
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_gate import OnDrift
from trainhouse.events.model.model_observations import ModelDriftMeasured
from trainhouse.events.model.model_registry import ModelRollbackRequested
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.alerts.driver import look
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.model_watch import ModelWatch
from trainhouse.projections.alerts.rule_files import shipped
from trainhouse.projections.alerts.rules import SqlRule
from trainhouse.projections.record import Record
from trainhouse.projections.rows.models import observation_rows
from trainhouse.workers.evaluation.drift import sketch_of
from trainhouse.workers.evaluation.observed_drift import observed_drift

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
    for _ in range(2):
        tables.put_records(records(("w-1", first), ("w-1", first), ("w-2", late)))
    (row,) = tables.ask("SELECT * FROM model_quality WHERE version = 2", {})
    assert (row["predictions"], row["labels"]) == (100, 11)
    assert row["live"] == pytest.approx(7 / 11), "p-9 was labelled anew"
    assert (row["stage"], row["offline"], row["offline_low"], row["suite"]) == ("champion", 0.9, 0.88, "accuracy")
    windows = tables.ask("SELECT event_id, predictions, labels, refusal FROM model_observations ORDER BY event_id", {})
    assert [(each["event_id"], each["predictions"], each["labels"], each["refusal"]) for each in windows] == [
        ("w-1", 100, 10, ""),
        ("w-2", 0, 2, ""),
    ]


def sent_at(tables: Tables, offset: int, event_id: str, event: Event, sent_ms: int, received_ms: int) -> None:
    """A record of an observation whose sender's clock and brokers' clock show these times."""
    value = encode(envelope_of(event, id=event_id, source="tests", now_ms=sent_ms))
    tables.put_records([Record(topics.OBSERVATIONS, 0, offset, received_ms, b"", value)])


def test_an_outcome_that_is_sent_again_late_takes_back_no_correction(tables: Tables) -> None:
    models(tables)
    first, corrected, at_last = (window(2, 3, outcomes={"accuracy": {"p": value}}) for value in (1.0, 0.5, 0.25))

    def live() -> list[float]:
        return [row["live"] for row in tables.ask("SELECT live FROM model_quality WHERE version = 2", {})]

    sent_at(tables, 1, "w-1", first, NOW_MS, NOW_MS)
    sent_at(tables, 2, "w-2", corrected, NOW_MS + 1000, NOW_MS + 1000)
    sent_at(tables, 3, "w-1", first, NOW_MS, NOW_MS + DAY_MS)
    assert live() == [0.5]
    sent_at(tables, 4, "w-3", corrected, NOW_MS + 99 * DAY_MS, NOW_MS + 2 * DAY_MS)
    sent_at(tables, 5, "w-4", at_last, NOW_MS + 3 * DAY_MS, NOW_MS + 3 * DAY_MS)
    assert live() == [0.25], "a sender's clock that is ahead counts as the brokers'"


def test_a_measurement_has_the_time_of_its_record() -> None:
    window_ms = {"window_start_ms": NOW_MS - HOUR_MS, "window_end_ms": NOW_MS}
    of = {"project": "vision", "name": "resnet", "version": 2, "observations": 1, "count": 9, "reference_id": "r", "reference": "train"}
    fields = ({"side": "input", "field": "age", "verdict": "STABLE"},)
    event = ModelDriftMeasured.model_validate(of | window_ms | {"reference_count": 9, "fields": fields, "at_ms": NOW_MS + 9 * DAY_MS})
    envelope = envelope_of(event, id="d", source="tests", now_ms=NOW_MS + 9 * DAY_MS)
    (row,) = observation_rows.rows(envelope, Record(topics.MODEL_DRIFT, 0, 0, NOW_MS + 5, b"", encode(envelope)))
    assert row.values["at"] == NOW_MS + 5, "the alerts's clock may be wrong, and the newest measurement counts"


def test_a_window_keeps_its_observations_until_it_is_old_and_is_measured_again_when_one_changes(tables: Tables) -> None:
    models(tables)
    tables.put_records(records(("ref", reference(2))))
    for offset, (days, n) in enumerate(((36, 960), (34, 960), (36, 961))):
        sent_at(tables, 10 + offset, f"w-{offset}", window(2, n, count=100, inputs=ages(40, 100)), NOW_MS, NOW_MS - days * DAY_MS)
    watching = watch(tables, published := Published(tables))
    watching.turn(NOW_MS, [])

    def measured() -> list[tuple[int, int]]:
        found = [each.event for each in published.sent[topics.MODEL_DRIFT]]
        return [(each.observations, each.count) for each in found if isinstance(each, ModelDriftMeasured)]

    assert measured() == [(2, 200)], "of the window that has a newer observation, both; none of the old one"
    sent_at(tables, 20, "w-1", window(2, 960, count=300, inputs=ages(60, 300)), NOW_MS + 60_000, NOW_MS + 60_000)
    for n in range(3):
        watching.turn(NOW_MS + 90_000 + n * 20_000, [])
    watch(tables, published).turn(NOW_MS + 200_000, [])
    assert measured() == [(2, 200), (2, 400)], "once more, with what the sender sent instead"


def test_champion_and_staging_stand_side_by_side(tables: Tables) -> None:
    models(tables)
    tables.put(
        topics.OBSERVATIONS,
        [window(version, 1, outcomes={"accuracy": outcomes(share, 100)}) for version, share in ((2, 0.8), (3, 0.9))],
        NOW_MS,
    )
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
    version = {
        "dataset": "imagenet",
        "project": "vision",
        "sha256": f"{number:x}" * 64,
        "schema_hash": "b" * 64,
        "split_config_hash": "c" * 64,
        "splits": {"train": {"samples": 9, "bytes": 9, "shards": 1}},
        "row_count": 9,
        "bytes": 9,
    }
    return DatasetVersionPublished.model_validate({"version": version, "created_by": "ada", "published_at_ms": at_ms})


def fired(tables: Tables, name: str, now_ms: int = NOW_MS) -> list[AlertFired]:
    """Alerts of a shipped rule as of a moment."""
    rule = shipped().rules[name]
    assert isinstance(rule, SqlRule)
    engine = Engine([rule])
    return [each for each in look(engine, rule, tables.ask, now_ms, 60_000) if isinstance(each, AlertFired)]


class Published:
    """Keeps what is published, and puts drift into the tables as the projector does."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.sent = tables, dict[str, list[Envelope]]()

    def __call__(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        self.sent.setdefault(topic, []).extend(envelopes)
        if topic == topics.MODEL_DRIFT:
            self.tables.put(topic, [each.event for each in envelopes])


def watch(tables: Tables, published: Published) -> ModelWatch:
    """Measures all that there is in one turn, however busy the machine is."""
    return ModelWatch(tables.ask, published, observed_drift, shipped().enabled, steady_s=lambda: 0.0)


def reference(version: int, mean: float = 40) -> ReferenceRecorded:
    about = {"project": "vision", "name": "resnet", "version": version, "count": 20_000, "source": "imagenet/train"}
    return ReferenceRecorded.model_validate(about | {"inputs": ages(mean, 20_000)})


def test_drift_of_two_windows_alerts_and_rolls_back_once_where_the_gate_says_so(tables: Tables) -> None:
    registry = models(tables, on_drift=OnDrift.ROLLBACK)
    published = Published(tables)
    watching = watch(tables, published)
    normal = [(f"n{n}", window(2, n, count=2000, inputs=ages(40))) for n in (5, 4, 3)]
    tables.put_records(records(("ref", reference(2)), *normal))
    watching.turn(NOW_MS, [])
    verdicts = tables.ask("SELECT verdict, stage FROM drift", {})
    assert [tuple(each.values()) for each in verdicts] == [("STABLE", "champion")] * 3
    tables.put_records(records(("d2", window(2, 2, count=2000, inputs=ages(60)))))
    watching.turn(NOW_MS + 20_000, [])
    assert fired(tables, "model-drift", NOW_MS + 30_000) == [], "one window alone may be chance"
    tables.put_records(
        records(("d1", window(2, 1, count=1000, inputs=ages(60, 1000))), ("d1-b", window(2, 1, count=1000, inputs=ages(60, 1000))))
    )
    watching.turn(NOW_MS + 40_000, [])
    (row,) = tables.ask("SELECT predictions, wasserstein, wasserstein_limit FROM drift ORDER BY window_end DESC LIMIT 1", {})
    assert row["predictions"] == 2000 and row["wasserstein"] > row["wasserstein_limit"]
    (alert,) = fired(tables, "model-drift", NOW_MS + 60_000)
    assert "input json.age" in alert.summary and "imagenet/train" in alert.summary and alert.labels["version"] == "2"
    measured = len(published.sent[topics.MODEL_DRIFT])
    for n in range(3):
        watching.turn(NOW_MS + 60_000 + n * 20_000, [alert])
    watch(tables, again := Published(tables)).turn(NOW_MS + 200_000, [alert])
    assert len(published.sent[topics.MODEL_DRIFT]) == measured and topics.MODEL_DRIFT not in again.sent, "nothing is measured twice"
    (request,), (repeated,) = published.sent[topics.MODEL_REQUESTS], again.sent[topics.MODEL_REQUESTS]
    assert request.id == repeated.id, "a process that begins anew asks under the same id"
    registry.ask(request.event, request.id)
    assert registry.model.champion == 1
    assert registry.ask(repeated.event, repeated.id) == []


def test_a_gate_that_only_alerts_rolls_nothing_back_and_staging_alerts_nobody(tables: Tables) -> None:
    models(tables)
    published = Published(tables)
    sent = [(f"v{version}-{n}", window(version, n, count=2000, inputs=ages(60))) for version in (2, 3) for n in (2, 1)]
    tables.put_records(records(*((f"ref-{version}", reference(version)) for version in (2, 3)), *sent))
    watch(tables, published).turn(NOW_MS, [])
    alerts = fired(tables, "model-drift", NOW_MS + 10_000)
    assert [each.labels["version"] for each in alerts] == ["2"]
    watch(tables, published).turn(NOW_MS + 60_000, alerts)
    assert topics.MODEL_REQUESTS not in published.sent


def test_a_version_that_is_champion_again_answers_for_windows_since_then_alone(tables: Tables) -> None:
    registry = models(tables, champions=(1,), staging=(2,))
    drifted = [(f"d{n}", window(1, n, count=2000, inputs=ages(60), outcomes={"accuracy": outcomes(0.5, 40, f"p{n}")})) for n in (8, 7, 3)]
    tables.put_records(records(("ref", reference(1)), *drifted[:2]))
    watch(tables, Published(tables)).turn(NOW_MS - 5 * HOUR_MS, [])
    for rule in ("model-drift", "model-quality"):
        assert [each.labels["version"] for each in fired(tables, rule)] == ["1"]
    known = len(registry.decisions)
    registry.now_ms = NOW_MS - 5 * HOUR_MS
    registry.promote(2)
    registry.ask(ModelRollbackRequested(project="vision", name="resnet", champion=2, reason="slow", user="ada"))
    assert registry.model.champion == 1
    tables.put(topics.MODEL_HISTORY, [each for each in registry.decisions[known:] if isinstance(each, ModelDecision)])
    for rule in ("model-drift", "model-quality"):
        assert fired(tables, rule) == [], "windows of before count no more"
    tables.put_records(records(*drifted[2:]))
    watch(tables, Published(tables)).turn(NOW_MS, [])
    assert fired(tables, "model-drift", NOW_MS + 10_000) == [], "one window of now, one of before"
    (alert,) = fired(tables, "model-quality")
    assert "40 " in alert.summary, "labels of the window of now alone"
    tables.put_records(records(drifted[2], ("d2", window(1, 2, count=2000, inputs=ages(60)))))
    watch(tables, Published(tables)).turn(NOW_MS + 20_000, [])
    assert [each.labels["version"] for each in fired(tables, "model-drift", NOW_MS + 30_000)] == ["1"]


def test_a_live_quality_that_is_worse_than_offline_alerts_and_noise_does_not(tables: Tables) -> None:
    models(tables, suites=({"suite": "accuracy", "metrics": {"accuracy": {"margin": 0.02}}},))
    tables.put(topics.OBSERVATIONS, [window(2, 1, outcomes={"accuracy": outcomes(0.87, 300)})], NOW_MS)
    assert fired(tables, "model-quality") == [], "3 points of 300 labels, 2 of them the margin"
    tables.put(topics.OBSERVATIONS, [window(2, 1, outcomes={"accuracy": outcomes(0.5, 29, "q")})], NOW_MS)
    tables.put(topics.OBSERVATIONS, [window(2, 1, outcomes={"accuracy": outcomes(0.7, 300)})], NOW_MS)
    (alert,) = fired(tables, "model-quality")
    assert alert.labels["metric"] == "accuracy" and "0.9 offline" in alert.summary and alert.value is not None and alert.value > 3.3


def test_a_champion_whose_data_has_newer_versions_for_long_is_stale(tables: Tables) -> None:
    models(tables)
    tables.put(topics.DATASETS, [published(0xC, START_MS - DAY_MS), published(1, NOW_MS - 35 * DAY_MS), published(2, NOW_MS - DAY_MS)])
    (alert,) = fired(tables, "model-stale")
    assert "2 versions of imagenet behind, for 35 days" in alert.summary
    (row,) = tables.ask("SELECT versions_behind, data FROM model_freshness WHERE stage = 'champion'", {})
    assert (row["versions_behind"], row["data"]) == (2, "imagenet@sha256:" + "c" * 64)
    assert fired(tables, "model-stale", NOW_MS - 10 * DAY_MS) == []
