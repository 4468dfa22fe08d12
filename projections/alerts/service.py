"""The alerts process: rules looked at in their turn, verdicts as they come; alerts to the topic, the log and the webhook.

Holds: what was looked at is told before anything else is looked at; a ClickHouse or broker that is away is said once, fires nothing,
and the process goes on when it is back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urljoin

import structlog

from trainhouse.events.model.alert import AlertEvent, AlertFired, Severity
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.logs import IDS
from trainhouse.events.runtime.metrics_server import new_registry, serve
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.alerts.alert_case import MAX_CASES, SOURCE
from trainhouse.projections.alerts.broker_io import AlertsBus
from trainhouse.projections.alerts.driver import attempts_over, filled, look, on_grid
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError, RuleTooExpensiveError, WatcherReplacedError
from trainhouse.projections.alerts.measuring import Measuring
from trainhouse.projections.alerts.model_watch import Measure, ModelWatch
from trainhouse.projections.alerts.query import Ask, asker
from trainhouse.projections.alerts.rule_files import load
from trainhouse.projections.alerts.rules import Rule, SqlRule, VerdictRule
from trainhouse.projections.alerts.settings import AlertsSettings
from trainhouse.projections.alerts.verdict_cases import Attempt
from trainhouse.projections.alerts.webhook import Webhook
from trainhouse.projections.process_metrics import AlertMeters
from trainhouse.projections.settings import ClickHouseSettings
from trainhouse.projections.shutdown import on_signal

WAIT_S = 1.0
# Rows of a moment need so long to come into the tables.
SETTLE_MS = 2000
# What is asked so often is of the kind that people ask; what is asked seldom reads days.
QUICK_S = 60
OVER_EVERY_MS = 15_000
# A stack that starts has its ClickHouse a while after this process: no news.
PATIENCE_MS = 30_000

log = structlog.get_logger(__name__)


class Bus(Protocol):
    """Port to the brokers."""

    def verdicts(self, wait_s: float) -> list[dict[str, Any]]:
        """The next verdicts."""

    def publish(self, events: list[AlertEvent], now_ms: int) -> None:
        """All or none."""


class Alerting:
    """The rules at work; `turn` is called again and again with a clock's time."""

    def __init__(self, engine: Engine, bus: Bus, ask: Ask, now_ms: int, meters: AlertMeters | None = None) -> None:
        self.measuring = Measuring(SOURCE, now_ms)
        self._engine = engine
        self._bus = bus
        self._ask = ask
        self._meters = meters or AlertMeters()
        self._unpublished: list[AlertEvent] = engine.retire(now_ms)
        self._asked_ms = {name: 0 for name, rule in engine.rules.items() if isinstance(rule, SqlRule)}
        self._unanswered_ms: dict[str, int] = {}
        self._filled: set[str] = set()
        self._over: Mapping[Attempt, int] = {}
        self._over_ms = 0
        self._failing: dict[str, str] = {}
        self._away_since_ms: int | None = None
        self._away_logged = False
        self._left_out_logged = False

    @property
    def open(self) -> list[AlertFired]:
        """Alerts that fired and have not resolved."""
        return self._engine.open

    def turn(self, now_ms: int, wait_s: float = WAIT_S) -> None:
        """Runs what is due. Blocks up to `wait_s` for verdicts, and on ClickHouse. Raises BusUnavailableError; then call it again."""
        self._publish(now_ms)
        for row in self._bus.verdicts(wait_s):
            self._meters.verdicts.inc()
            self._engine.on_verdict(row)
        self._say_what_is_left_out()
        events = self._look(now_ms)
        self._unpublished = events + self._engine.tick(now_ms, self._over)
        self._publish(now_ms)
        for severity in Severity:
            self._meters.open.labels(severity).set(sum(alert.severity == severity for alert in self._engine.open))

    def _say_what_is_left_out(self) -> None:
        if self._engine.left_out and not self._left_out_logged:
            self._left_out_logged = True
            log.warning("a rule has more cases than are kept; the newest of them are left out", bound=MAX_CASES)

    def _look(self, now_ms: int) -> list[AlertEvent]:
        events: list[AlertEvent] = []
        try:
            self._look_what_is_over(now_ms)
            due = list(self._due(now_ms))
            self._look_what_is_filled({rule.needs for rule, _ in due if rule.needs})
            for rule, at_ms in due:
                events += self._look_at(rule, at_ms)
                self._asked_ms[rule.name] = at_ms
        except EndpointUnavailableError as error:
            self._count_unanswered(now_ms)
            self._is_away(now_ms, error)
        else:
            if self._away_logged:
                log.info("ClickHouse answers again; rules go on")
            self._away_since_ms, self._away_logged = None, False
        return events

    def _due(self, now_ms: int) -> Iterator[tuple[SqlRule, int]]:
        """The rules over SQL that are to be asked now, each with the moment that it is asked about."""
        for name, last_ms in self._asked_ms.items():
            rule = self._engine.rules[name]
            assert isinstance(rule, SqlRule)
            at_ms = on_grid(now_ms - SETTLE_MS, rule.every_s * 1000)
            if at_ms > last_ms:
                yield rule, at_ms

    def _count_unanswered(self, now_ms: int) -> None:
        """A question counts once, answered or not: so an outage weighs by how long it lasts, not by how often it is tried."""
        for rule, at_ms in self._due(now_ms):
            if rule.every_s <= QUICK_S and self._unanswered_ms.get(rule.name) != at_ms:
                self._unanswered_ms[rule.name] = at_ms
                self.measuring.failed()

    def _look_at(self, rule: SqlRule, at_ms: int) -> list[AlertEvent]:
        began_s = time.monotonic()
        if rule.needs and rule.needs not in self._filled:
            return self._engine.rows(rule.name, [], at_ms, rule.every_s * 1000)
        try:
            events = look(self._engine, rule, self._ask, at_ms, rule.every_s * 1000)
            took_s = time.monotonic() - began_s
            self._meters.rule.labels("looked").observe(took_s)
            if rule.every_s <= QUICK_S:
                self.measuring.answered(took_s)
        except RuleFailedError as error:
            self._meters.rule.labels("failed").observe(time.monotonic() - began_s)
            if isinstance(error, RuleTooExpensiveError) and rule.every_s <= QUICK_S:
                self.measuring.failed()
            if self._failing.get(rule.name) != str(error):
                log.error("a rule cannot be evaluated; the others go on", rule=rule.name, error=str(error))
            self._failing[rule.name] = str(error)
            return []
        if self._failing.pop(rule.name, None):
            log.info("a rule is evaluated again", rule=rule.name)
        return events

    def _look_what_is_filled(self, tables: set[str]) -> None:
        """Notes which of the tables have rows, by one query: most stacks have no models, budgets or drift, and their rules cost most."""
        try:
            self._filled |= filled(self._ask, tables - self._filled)
        except RuleFailedError:
            self._filled |= tables  # the rules themselves say what is wrong

    def _look_what_is_over(self, now_ms: int) -> None:
        if now_ms - self._over_ms < OVER_EVERY_MS:
            return
        try:
            self._over = attempts_over(self._ask, self._engine.attempts, now_ms)
            self._failing.pop("", None)
        except RuleFailedError as error:
            if self._failing.get("") != str(error):
                log.error("what attempts are over is not known; their verdicts end with time", error=str(error))
            self._failing[""] = str(error)
        self._over_ms = now_ms

    def _is_away(self, now_ms: int, error: EndpointUnavailableError) -> None:
        if self._away_since_ms is None:
            self._away_since_ms = now_ms
        if not self._away_logged and now_ms - self._away_since_ms >= PATIENCE_MS:
            self._away_logged = True
            log.warning("rules over SQL rest: nothing of theirs fires or resolves until ClickHouse answers", error=str(error))

    def _publish(self, now_ms: int) -> None:
        if not self._unpublished:
            return
        self._bus.publish(self._unpublished, now_ms)
        for event in self._unpublished:
            fired = isinstance(event, AlertFired)
            self._meters.published.labels("fired" if fired else "resolved", event.severity).inc()
            say = log.warning if fired else log.info
            say(
                f"alert {'fired' if fired else 'resolved'}",
                **event.model_dump(mode="json", include={"rule", "key", "severity", "summary"}),
                **{name: value for name, value in event.labels.items() if name in IDS},
            )
        self._unpublished = []


def main(kafka: KafkaSettings, clickhouse: ClickHouseSettings, settings: AlertsSettings, measure: Measure | None = None) -> int:
    """Runs until a signal. `measure`: of the drift of models. Returns 0 after one, 1 when it cannot go on. Blocks."""
    stop = on_signal()
    os.environ.setdefault("TZ", "UTC")
    loaded = load(settings.rules)
    for fault in loaded.faults:
        log.error("a rule is refused; the others run", fault=str(fault))
    rules = [linked(rule, settings.runbooks_url) for rule in loaded.enabled]
    try:
        registry = new_registry()
        serve(registry)
        ask = asker(clickhouse, settings.query_timeout_s)
        run(kafka, rules, ask, settings, stop, meters=AlertMeters(registry), measure=measure)
    except WatcherReplacedError as error:
        log.error("ending", error=str(error))
        return 1
    return 0


def run(
    kafka: KafkaSettings,
    rules: list[Rule],
    ask: Ask,
    settings: AlertsSettings,
    stop: threading.Event,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    meters: AlertMeters | None = None,
    measure: Measure | None = None,
) -> None:
    """Runs until `stop` is set. Raises WatcherReplacedError. Blocks."""
    bus = AlertsBus(kafka)
    models = ModelWatch(ask, bus.publish_of_models, measure, rules)
    alerting = _begin(bus, rules, ask, stop, clock, meters)
    webhook = Webhook(kafka, settings, stop) if settings.webhook_url else None
    if webhook is not None:
        webhook.start()
    log.info("watching", rules=len(rules), webhook=bool(webhook))
    away = ""
    while alerting is not None and not stop.is_set():
        try:
            alerting.turn(clock())
            models.turn(clock(), alerting.open)
            measured = alerting.measuring.due(clock())
            if measured is not None:
                bus.publish_measured(measured)
            if away:
                log.info("the brokers answer again")
            away = ""
        except BusUnavailableError as error:
            if away != str(error):
                log.warning("alerts wait until the brokers answer", error=str(error))
            away = str(error)
            stop.wait(WAIT_S)
    if webhook is not None:
        webhook.join(5)
    bus.close()


def _begin(
    bus: AlertsBus, rules: list[Rule], ask: Ask, stop: threading.Event, clock: Callable[[], int], meters: AlertMeters | None
) -> Alerting | None:
    """Reads back what was told and heard; None when it is stopped before."""
    memory_s = max((rule.resolve_after_s for rule in rules if isinstance(rule, VerdictRule)), default=0.0)
    logged = ""
    while not stop.is_set():
        try:
            before, verdicts = bus.open(clock() - round(memory_s * 1000))
        except BusUnavailableError as error:
            if logged != str(error):
                log.warning("waiting for the brokers", error=str(error))
            logged = str(error)
            stop.wait(WAIT_S)
            continue
        engine = Engine(rules)
        engine.restore(before)
        for row in verdicts:
            engine.on_verdict(row)
        return Alerting(engine, bus, ask, clock(), meters)
    return None


def linked(rule: Rule, base: str) -> Rule:
    """The rule with its runbook's whole address, if it is a relative one and there is a base."""
    return rule.model_copy(update={"runbook": urljoin(base, rule.runbook)}) if base and rule.runbook else rule
