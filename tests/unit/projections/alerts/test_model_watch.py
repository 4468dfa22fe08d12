"""Models in service, as alerts look after them, without servers: what is away is asked again, what cannot be measured stops nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from trainhouse.events import LiveFieldFigures, LiveSide, LiveVerdict, ModelGate
from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.model_gate import OnDrift
from trainhouse.events.model.model_observations import ObservedRows
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import MODEL_DRIFT, MODEL_REQUESTS
from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError
from trainhouse.projections.alerts.model_watch import (
    CHAMPION_SQL,
    EVERY_MS,
    MOST_TURN_S,
    PENDING_SQL,
    REFERENCE_SQL,
    RETRY_MS,
    ModelWatch,
)
from trainhouse.projections.alerts.rule_files import shipped
from trainhouse.projections.alerts.rules import SqlRule

NOW = 1_800_000_000_000
FIGURES = (LiveFieldFigures(side=LiveSide.INPUT, field="age", verdict=LiveVerdict.STABLE),)
PROFILE = '{"samples":3}'


class Tables:
    """Windows, a reference, and a champion whose gate rolls back."""

    def __init__(self) -> None:
        self.away: Exception | None = None
        self.profile = PROFILE
        self.gate = ModelGate(on_drift=OnDrift.ROLLBACK).model_dump_json()
        self.champion = 2
        self.windows, self.observations = 1, 1
        self.too_large = ""
        self.asked = 0

    def __call__(self, sql: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
        if self.away is not None:
            raise self.away
        if sql == CHAMPION_SQL:
            return [{"champion": self.champion, "decision": 7, "gate": self.gate}]
        if sql == PENDING_SQL:
            self.asked += 1
            window = {"project": "p", "name": "m", "version": 2, "observations": self.observations, "newest_ms": NOW}
            of_reference = {"reference_id": "r", "reference": "train", "reference_count": 9}
            return [window | of_reference | {"start_ms": NOW - 10 - n, "end_ms": NOW - n} for n in range(self.windows)]
        if values.get("start") == self.too_large:
            raise RuleFailedError("its answer is too large")
        return [{"count": 9 if sql == REFERENCE_SQL else 3, "sides": ["input"], "fields": ["age"], "profiles": [self.profile]}]


class Brokers:
    def __init__(self) -> None:
        self.away = False
        self.sent: list[tuple[str, str]] = []

    def __call__(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        if self.away:
            raise BusUnavailableError("away")
        self.sent += [(topic, each.id) for each in envelopes]


def measured(reference: ObservedRows, live: Sequence[ObservedRows]) -> tuple[LiveFieldFigures, ...]:
    assert reference.count == 9 and [each.count for each in live] == [3]
    return FIGURES


def alert(rule: str = "model-drift", version: str = "2") -> AlertFired:
    labels = {"project": "p", "model": "m", "version": version}
    return AlertFired(rule=rule, key="k", severity=Severity.WARNING, labels=labels, summary="drifted", since_ms=NOW, at_ms=NOW)


def test_a_clickhouse_or_a_broker_that_is_away_is_asked_again() -> None:
    tables, brokers = Tables(), Brokers()
    watch = ModelWatch(tables, brokers, measured, shipped().enabled, lambda: 0.0)
    tables.away = EndpointUnavailableError("away")
    watch.turn(NOW, [])
    assert brokers.sent == []
    tables.away, brokers.away = None, True
    with pytest.raises(BusUnavailableError):
        watch.turn(NOW + EVERY_MS, [])
    brokers.away = False
    for n in range(2, 5):
        watch.turn(NOW + n * EVERY_MS, [])
    assert [topic for topic, _ in brokers.sent] == [MODEL_DRIFT], "once, though the tables are behind"


def test_a_window_that_cannot_be_measured_and_a_query_that_fails_are_logged_once() -> None:
    tables, brokers = Tables(), Brokers()
    tables.profile = '{"samples":-1}'
    watch = ModelWatch(tables, brokers, measured, shipped().enabled, lambda: 0.0)
    with capture_logs() as logs:
        for n in range(3):
            watch.turn(NOW + n * EVERY_MS, [])
        tables.away = RuleFailedError("no such table")
        for n in range(3, 6):
            watch.turn(NOW + n * EVERY_MS, [])
    assert [each["event"] for each in logs] == [
        "a window cannot be measured; others are",
        "models in service cannot be looked at; alerts go on",
    ]
    assert brokers.sent == []


def test_a_window_whose_measuring_fails_in_whatever_way_keeps_up_no_other_until_it_changes() -> None:
    def fails_once(reference: ObservedRows, live: Sequence[ObservedRows]) -> tuple[LiveFieldFigures, ...]:
        tried.append(1)
        if len(tried) == 1:
            raise ZeroDivisionError("division by zero")
        return FIGURES

    tables, brokers, tried = Tables(), Brokers(), list[int]()
    tables.windows = 2
    watch = ModelWatch(tables, brokers, fails_once, shipped().enabled, lambda: 0.0)
    with capture_logs() as logs:
        for n in range(3):
            watch.turn(NOW + n * EVERY_MS, [])
    (entry,) = logs
    assert (entry["model"], entry["version"], entry["window_start_ms"], entry["window_end_ms"]) == ("p/m", 2, NOW - 10, NOW)
    assert "ZeroDivisionError" in entry["error"]
    assert (len(brokers.sent), len(tried)) == (1, 2), "the other one is measured, and neither again"
    tables.observations = 2
    watch.turn(NOW + 3 * EVERY_MS, [])
    assert (len(brokers.sent), len(tried)) == (3, 4), "both changed"


def test_a_window_that_cannot_be_asked_for_keeps_up_no_other() -> None:
    tables, brokers = Tables(), Brokers()
    tables.windows, tables.too_large = 2, str(NOW - 10)
    watch = ModelWatch(tables, brokers, measured, shipped().enabled, lambda: 0.0)
    with capture_logs() as logs:
        for n in range(2):
            watch.turn(NOW + n * EVERY_MS, [])
    assert ([each["event"] for each in logs], len(brokers.sent)) == (["a window cannot be measured; others are"], 1)
    tables.too_large = "none"
    watch.turn(NOW + RETRY_MS - 1, [])
    assert len(brokers.sent) == 1
    for n in range(2):
        watch.turn(NOW + RETRY_MS + (n + 1) * EVERY_MS, [])
    assert len(brokers.sent) == 2, "ClickHouse may have been short of memory"


def test_a_turn_is_bounded_by_time_and_the_next_one_goes_on() -> None:
    clock_s = [5.0]

    def slow(reference: ObservedRows, live: Sequence[ObservedRows]) -> tuple[LiveFieldFigures, ...]:
        clock_s[0] += 0.6 * MOST_TURN_S
        return FIGURES

    tables, brokers = Tables(), Brokers()
    tables.windows = 5
    watch = ModelWatch(tables, brokers, slow, shipped().enabled, lambda: clock_s[0])
    sent = []
    for n in range(4):
        watch.turn(NOW + n, [])
        sent.append(len(brokers.sent))
    assert sent == [2, 4, 5, 5], "rules are asked between"
    assert tables.asked == 1, "what is left is known"
    tables.observations = 2
    watch.turn(NOW + EVERY_MS, [])
    tables.away = EndpointUnavailableError("away")
    watch.turn(NOW + EVERY_MS + 1, [])
    tables.away = None
    watch.turn(NOW + EVERY_MS + 2, [])
    assert (len(brokers.sent), tables.asked) == (7, 2), "a ClickHouse that is away is left alone until the next one is due"


def test_an_alert_of_a_rule_of_before_stops_nothing() -> None:
    brokers = Brokers()
    without = alert().model_copy(update={"labels": {"pool": "p"}})
    ModelWatch(Tables(), brokers, None, shipped().enabled).turn(NOW, [without, alert()])
    assert [topic for topic, _ in brokers.sent] == [MODEL_REQUESTS]


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    tables = Tables()
    watch = ModelWatch(tables, Brokers(), measured, shipped().enabled, lambda: 0.0)
    for now_ms in (NOW, NOW - 3_600_000, NOW - 3_600_000 + 1, NOW - 3_600_000 + EVERY_MS):
        watch.turn(now_ms, [])
    assert tables.asked == 3


def test_without_the_libraries_of_statistics_champions_are_asked_back_all_the_same() -> None:
    def not_installed(reference: ObservedRows, live: Sequence[ObservedRows]) -> tuple[LiveFieldFigures, ...]:
        raise ImportError("scipy")

    tables, brokers = Tables(), Brokers()
    watch = ModelWatch(tables, brokers, not_installed, shipped().enabled, lambda: 0.0)
    with capture_logs() as logs:
        for n in range(3):
            watch.turn(NOW + n * EVERY_MS, [alert(), alert("model-quality"), alert("model-stale")])
    assert [topic for topic, _ in brokers.sent] == [MODEL_REQUESTS], "one request for the champion, whatever alerts there are"
    assert sum("trainhouse[evaluation]" in each["event"] for each in logs) == 1


@pytest.mark.parametrize(
    ("champion", "gate"),
    [
        (3, ModelGate(on_drift=OnDrift.ROLLBACK).model_dump_json()),
        (2, ModelGate().model_dump_json()),
        (2, ""),
        (0, ""),
        (2, '{"on_drift":"x"}'),
    ],
)
def test_only_the_champion_of_the_alert_is_asked_back_and_only_by_its_gate(champion: int, gate: str) -> None:
    tables, brokers = Tables(), Brokers()
    tables.champion, tables.gate = champion, gate
    ModelWatch(tables, brokers, None, shipped().enabled).turn(NOW, [alert()])
    assert brokers.sent == []


def test_a_rule_that_rolls_back_names_the_champion_by_its_labels() -> None:
    about = {"name": "r", "severity": "INFO", "summary": "s", "sql": "SELECT 1 AS value WHERE {now} > 0", "when": "above", "limit": 0}
    with pytest.raises(ValidationError, match="they name the champion"):
        SqlRule.model_validate(about | {"rolls_back": True, "labels": ["project", "model"]})
    assert SqlRule.model_validate(about | {"rolls_back": True, "labels": ["project", "model", "version"]}).rolls_back
