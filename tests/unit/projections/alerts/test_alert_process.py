"""The alerts process without its servers: what is away is told once, nothing twice; the webhook is tried within bounds."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from trainhouse.events.model.alert import AlertEvent, AlertFired, AlertResolved
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError, RuleTooExpensiveError
from trainhouse.projections.alerts.query import asker, moment, texts
from trainhouse.projections.alerts.rules import Rule, SqlRule, VerdictRule
from trainhouse.projections.alerts.service import PATIENCE_MS, Alerting
from trainhouse.projections.alerts.settings import AlertsSettings
from trainhouse.projections.alerts.webhook import deliver
from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.rows.verdict_rows import COLUMNS
from trainhouse.projections.settings import ClickHouseSettings

START = 1_800_000_000_000


class MemoryBus:
    """A topic of verdicts and one of alerts, and brokers that may be away."""

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []
        self.told: list[AlertEvent] = []
        self.away = False

    def verdicts(self, wait_s: float) -> list[dict[str, Any]]:
        found, self.waiting = self.waiting, []
        return found

    def publish(self, events: list[AlertEvent], now_ms: int) -> None:
        if self.away:
            raise BusUnavailableError("away")
        self.told += events


class MemoryTables:
    """Answers by the name in the query; may be away, and may refuse one."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.away = False
        self.refused = ""
        self.refusal: type[RuleFailedError] = RuleFailedError
        self.asked: list[str] = []
        self.filled: set[str] = set()
        self.looked: list[str] = []

    def __call__(self, sql: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
        if self.away:
            raise EndpointUnavailableError("connection refused")
        if "UNION ALL" in sql or "LIMIT 1)" in sql:
            self.looked.append(sql)
            return [{"name": table} for table in self.filled if f"FROM {table} " in sql]
        name = sql.split()[1]
        self.asked.append(f"{name} {values['now']}")
        if name == self.refused:
            raise self.refusal("no such table")
        return [{"pool": "p", "value": self.values[name]}] if name in self.values else []


def rule(name: str, every_s: int = 30) -> SqlRule:
    about = {"name": name, "severity": "WARNING", "summary": "{pool}", "labels": ["pool"], "when": "above", "limit": 1}
    return SqlRule.model_validate(about | {"sql": f"SELECT {name} , value FROM t WHERE at <= {{now}}", "every_s": every_s})


def alerting(rules: list[Rule], bus: MemoryBus, tables: MemoryTables) -> Alerting:
    return Alerting(Engine(rules), bus, tables, START)


def test_each_rule_is_asked_once_a_turn_of_its_own_about_moments_of_its_grid() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    process = alerting([rule("fast", 15), rule("slow", 60)], bus, tables)
    for s in range(70):
        process.turn(START + 1000 * s, 0)
    assert [a for a in tables.asked if a.startswith("slow")] == [f"slow {moment(START + 60_000 * n)}" for n in (-1, 0, 1)]
    assert [a for a in tables.asked if a.startswith("fast")] == [f"fast {moment(START + 15_000 * n)}" for n in range(-1, 5)]


def test_a_rule_is_not_asked_while_the_table_that_it_needs_is_empty() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.values = {"hot": 5.0, "cold": 5.0, "free": 5.0}
    hot, cold = (rule(name).model_copy(update={"needs": f"rows_of_{name}"}) for name in ("hot", "cold"))
    process = alerting([hot, cold, rule("free")], bus, tables)
    process.turn(START + 2000, 0)
    assert [a.split()[0] for a in tables.asked] == ["free"] and [e.rule for e in bus.told] == ["free"]
    assert len(tables.looked) == 1, "all are looked at by one question"
    tables.filled = {"rows_of_hot"}
    process.turn(START + 32_000, 0)
    process.turn(START + 62_000, 0)
    assert [a.split()[0] for a in tables.asked] == ["free", "hot", "free", "hot", "free"]
    assert "rows_of_hot" not in tables.looked[-1], "what has rows is not looked at again"


def test_an_alert_of_before_is_over_where_its_table_is_empty_now() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.values, tables.filled = {"hot": 5.0}, {"rows_of_hot"}
    hot = rule("hot").model_copy(update={"needs": "rows_of_hot"})
    alerting([hot], bus, tables).turn(START + 2000, 0)
    engine = Engine([hot])
    engine.restore(bus.told)
    tables.filled = set()
    Alerting(engine, bus, tables, START).turn(START + 32_000, 0)
    assert [type(e) for e in bus.told] == [AlertFired, AlertResolved]


def test_a_clickhouse_that_is_away_fires_nothing_and_is_told_once() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.values = {"hot": 5.0}
    process = alerting([rule("hot")], bus, tables)
    process.turn(START + 2000, 0)
    assert [type(e) for e in bus.told] == [AlertFired]
    tables.away, tables.values = True, {}
    with capture_logs() as logs:
        for s in range(10, 300, 10):
            process.turn(START + 1000 * s, 0)
    assert len(bus.told) == 1 and [line["log_level"] for line in logs] == ["warning"]
    tables.away = False
    with capture_logs() as logs:
        process.turn(START + 310_000, 0)
    assert "answers again" in logs[0]["event"] and len(bus.told) == 2


def test_a_clickhouse_that_is_not_up_yet_is_no_news() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.away = True
    process = alerting([rule("hot")], bus, tables)
    with capture_logs() as logs:
        for ms in range(0, PATIENCE_MS, 5000):
            process.turn(START + ms, 0)
    assert logs == []


def test_a_rule_that_fails_is_told_once_and_the_others_go_on() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.refused, tables.values = "bad", {"hot": 5.0}
    process = alerting([rule("bad"), rule("hot")], bus, tables)
    with capture_logs() as logs:
        for s in range(0, 200, 10):
            process.turn(START + 1000 * s, 0)
    assert [line["rule"] for line in logs if line["log_level"] == "error"] == ["bad"]
    assert [e.rule for e in bus.told] == ["hot"]


def test_an_outage_weighs_by_how_long_it_lasts_and_a_query_that_clickhouse_gives_up_is_not_answered() -> None:  # pragma: allowlist secret
    bus, tables = MemoryBus(), MemoryTables()
    process = alerting([rule("hot"), rule("cold"), rule("slow", 300)], bus, tables)
    tables.away = True
    for s in range(600):
        process.turn(START + 1000 * s, 0)
    away = process.measuring.due(START + 600_000)
    tables.away = False
    for s in range(600, 1200):
        process.turn(START + 1000 * s, 0)
    there = process.measuring.due(START + 1_200_000)
    assert away is not None and (away.total, away.failed) == (2 * 21, 2 * 21)
    assert there is not None and (there.total, there.failed) == (2 * 21, 0)
    now_ms = START + 1_200_000
    for tables.refused, tables.refusal, failed in (
        ("cold", RuleFailedError, 0),
        ("slow", RuleTooExpensiveError, 0),
        ("hot", RuleTooExpensiveError, 1),
    ):
        now_ms += 330_000
        process.turn(now_ms, 0)
        told = process.measuring.due(now_ms)
        assert told is not None and told.failed == failed


def test_what_could_not_be_told_is_told_before_anything_else_is_looked_at() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.values = {"hot": 5.0}
    process = alerting([rule("hot")], bus, tables)
    bus.away = True
    with pytest.raises(BusUnavailableError):
        process.turn(START + 2000, 0)
    asked = len(tables.asked)
    tables.values = {}
    for s in range(40, 100, 10):
        with pytest.raises(BusUnavailableError):
            process.turn(START + 1000 * s, 0)
    assert len(tables.asked) == asked
    bus.away = False
    process.turn(START + 130_000, 0)
    assert [type(e).__name__ for e in bus.told] == ["AlertFired", "AlertResolved"]


def test_a_verdict_is_told_in_the_same_turn_also_while_clickhouse_is_away() -> None:
    bus, tables = MemoryBus(), MemoryTables()
    tables.away = True
    hung = {"name": "hung", "severity": "CRITICAL", "summary": "s", "labels": ["job_id"], "verdict": "trainhouse.gang.hung.v1"}
    process = alerting([VerdictRule.model_validate(hung), rule("hot")], bus, tables)
    blank: dict[str, Any] = dict.fromkeys(COLUMNS, "") | dict.fromkeys(("epoch", "rank", "value", "limit"))
    bus.waiting = [blank | {"type": "trainhouse.gang.hung.v1", "at": START, "job_id": "j", "epoch": 1}]
    with capture_logs() as logs:
        process.turn(START + 100, 0)
    assert [(e.rule, e.key, e.at_ms) for e in bus.told] == [("hung", "job_id=j", START)]
    assert [(line["event"], line["rule"]) for line in logs] == [("alert fired", "hung")]


class Receiver(BaseHTTPRequestHandler):
    """A webhook that answers what it is told to, one after the other, then 200."""

    answers: list[int]
    seen: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).seen.append({"type": self.headers["Content-Type"], "body": json.loads(body)})
        self.send_response(type(self).answers.pop(0) if type(self).answers else 200)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[Receiver]]]:
    kind = type("Own", (Receiver,), {"answers": [], "seen": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_is_tried_again_until_it_takes_the_event(receiver: tuple[str, type[Receiver]]) -> None:
    url, kind = receiver
    kind.answers = [503, 429, 500]
    pauses: list[float] = []
    settings = AlertsSettings(webhook_url=url, webhook_tries=8)
    assert deliver(settings, b'{"id": "1"}', lambda s: bool(pauses.append(s))) is None
    assert [s["body"] for s in kind.seen] == [{"id": "1"}] * 4 and kind.seen[0]["type"].startswith("application/cloudevents+json")
    assert pauses == [0.5, 1.0, 2.0]


def test_tries_are_bounded_and_a_wrong_address_is_not_tried_again(receiver: tuple[str, type[Receiver]]) -> None:
    url, kind = receiver
    kind.answers = [500] * 20
    pauses: list[float] = []
    assert deliver(AlertsSettings(webhook_url=url, webhook_tries=9), b"{}", lambda s: bool(pauses.append(s))) == "500 Internal Server Error"
    assert len(kind.seen) == 9 and max(pauses) == 30.0
    kind.seen, kind.answers = [], [404]
    assert deliver(AlertsSettings(webhook_url=url), b"{}", lambda s: False) == "404 Not Found" and len(kind.seen) == 1
    away = AlertsSettings(webhook_url="http://127.0.0.1:1/", webhook_tries=2)
    assert "refused" in (deliver(away, b"{}", lambda s: False) or "")
    assert deliver(away, b"{}", lambda s: True) is not None, "the process ends meanwhile"


def test_a_receiver_that_speaks_no_http_is_given_up_after_as_many_tries() -> None:
    def speak() -> None:
        for _ in range(3):
            talk, _ = listening.accept()
            with talk:
                talk.recv(65_536)
                talk.sendall(b"who is there?\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        settings = AlertsSettings(webhook_url=f"http://127.0.0.1:{listening.getsockname()[1]}/", webhook_tries=3)
        assert "who is there?" in (deliver(settings, b"{}", lambda s: False) or "")
        thread.join()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="webhook"):
        AlertsSettings(webhook_url="example.org")


def test_nobody_there_is_an_endpoint_that_is_away() -> None:
    with pytest.raises(EndpointUnavailableError, match="does not answer"):
        asker(ClickHouseSettings(url="http://127.0.0.1:1"), 1.0)("SELECT 1", {})


def test_a_query_that_took_too_much_is_told_from_one_that_is_wrong(receiver: tuple[str, type[Receiver]]) -> None:
    url, kind = receiver
    ask = asker(ClickHouseSettings(url=url), 5.0)
    for status, kinds in (
        (408, RuleTooExpensiveError),
        (507, RuleTooExpensiveError),
        (400, RuleFailedError),
        (503, EndpointUnavailableError),
    ):
        kind.answers = [status]
        with pytest.raises(ProjectionError) as failed:
            ask("1", {})
        assert type(failed.value) is kinds


def test_values_are_written_as_clickhouse_reads_them() -> None:
    assert moment(START + 7) == "2027-01-15 08:00:00.007"
    assert texts(["a", "it's", "b\\"]) == r"['a','it\'s','b\\']"
