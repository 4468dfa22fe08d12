"""The alerts process on a real Kafka, ClickHouse's endpoint and a webhook: killed, replaced, and compared with the past."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.decoded import decoded
from tests.support.tables.alert_tables import DAY_MS, HOUR_MS, MINUTE_MS, Tables, beat, tables_in, verdict
from tests.support.waiting import until
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, partitions_of, read_to_end
from trainhouse.events.model.alert import AlertEvent, AlertFired
from trainhouse.events.model.attempt import AttemptStopped
from trainhouse.events.model.base import Event
from trainhouse.events.model.verdict import VerdictLifted
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.alerts.backtest import backtest
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.rule_files import shipped
from trainhouse.projections.alerts.rules import Rule
from trainhouse.projections.alerts.service import SETTLE_MS, Alerting
from trainhouse.projections.rows import verdict_rows

pytestmark = pytest.mark.stack
NOW = 1_800_000_000_000
PATIENCE_S = 300
# Each look reads a topic.
LOOK_EVERY_S = 0.5
HUNG = "trainhouse.gang.hung.v1"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("alerts")) as made:
        yield made


class Hook:
    """A webhook that keeps what it gets, and refuses the first try."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.tries = 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.tries += 1
                self.send_response(503 if hook.tries == 1 else 204)
                self.end_headers()
                if hook.tries > 1:
                    hook.got.append(json.loads(body))

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Process:
    """One alerts process that can be killed and started again."""

    def __init__(self, kafka: KafkaSettings, tables: Tables, hook: Hook, folder: Path) -> None:
        self._log = folder / "alerts.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")}
        self._environment = clean | {
            "TRAINHOUSE_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "TRAINHOUSE_CLICKHOUSE_URL": tables.url,
            "TRAINHOUSE_ALERTS_WEBHOOK_URL": hook.url,
            "TRAINHOUSE_ALERTS_RULES": str(folder / "rules"),
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "trainhouse.cli.main", "run", "alerts"]
            started = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGKILL), cwd=self._log.parent
            )
        self.running.append(started)
        return started

    def starts(self) -> int:
        """How often one began to watch."""
        return self._log.read_text().count('"watching"')

    def words(self) -> str:
        return self._log.read_text()[-4000:]


def told(kafka: KafkaSettings, rule: str) -> list[tuple[str, AlertEvent]]:
    """Id and event of each alert of a rule on the topic, in order."""
    reader = consumer(kafka, **TO_END)
    try:
        found = list(decoded(read_to_end(reader, topics.ALERTS, partitions_of(reader, topics.ALERTS))))
    finally:
        reader.close()
    return [(str(e.id), e.event) for e in found if isinstance(e.event, AlertEvent) and e.event.rule == rule]


def test_killed_replaced_and_told_once(kafka: str, tables: Tables, tmp_path: Path) -> None:
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.yaml").write_text(
        "rules:\n  - name: own\n    severity: INFO\n    summary: '{pool} has {value:.0f}'\n    labels: [pool]\n"
        "    sql: SELECT pool, count() AS value FROM verdicts WHERE at <= {now} AND pool = 'own' GROUP BY pool\n"
        "    when: above\n    limit: 1\n    every_s: 1\n  - name: broken\n    severity: INFO\n    sql: SELECT now()\n"
    )
    job = f"alerted-{time.time_ns()}"
    producer = EventProducer(settings)

    def say(event: Event) -> None:
        producer.send(topics.VERDICTS, envelope_of(event, id=f"{job}:{time.time_ns()}", source="test", now_ms=now_ms()))
        producer.flush()

    def mine() -> list[tuple[str, AlertEvent]]:
        return [(name, e) for name, e in told(settings, "gang-hung") if e.labels["job_id"] == job]

    hook = Hook()
    process = Process(settings, tables, hook, tmp_path)
    try:
        first = process.start()
        until(lambda: process.starts() == 1, process.words, PATIENCE_S, LOOK_EVERY_S)
        assert "own.yaml:10" in process.words(), "the broken rule is told with its line"
        say(verdict("GangHung", now_ms(), "default", job_id=job, silent_s=9, limit_s=3)[1])
        until(lambda: len(mine()) == 1, process.words, PATIENCE_S, LOOK_EVERY_S)
        tables.put(topics.VERDICTS, [verdict("GangHung", now_ms() - 1, "own", job_id=f"{job}-{n}", silent_s=9, limit_s=3)[1] for n in "ab"])
        until(lambda: len(told(settings, "own")) == 1, process.words, PATIENCE_S, LOOK_EVERY_S)
        until(lambda: {g["data"]["rule"] for g in hook.got} >= {"gang-hung", "own"}, process.words, PATIENCE_S, LOOK_EVERY_S)
        first.kill()
        first.wait(60)
        # Lifted while nobody watched; and a second process, which the third puts out.
        say(VerdictLifted.model_validate({"pool": "default", "at_ms": now_ms(), "of": HUNG, "job_id": job, "epoch": 1, "since_ms": 0}))
        second = process.start()
        until(lambda: len(mine()) == 2, process.words, PATIENCE_S, LOOK_EVERY_S)
        process.start()
        until(lambda: process.starts() == 3, process.words, PATIENCE_S, LOOK_EVERY_S)
        say(verdict("GangHung", now_ms(), "default", job_id=job, epoch=2, silent_s=9, limit_s=3)[1])
        until(lambda: len(mine()) == 3 and second.poll() == 1, process.words, PATIENCE_S, LOOK_EVERY_S)
        names = [name for name, _ in mine()]
        assert [isinstance(e, AlertFired) for _, e in mine()] == [True, False, True] and len(set(names)) == 3
        assert len(told(settings, "own")) == 1, "what was told is not told again after a restart"
        until(lambda: {g["id"] for g in hook.got} >= set(names), process.words, PATIENCE_S, LOOK_EVERY_S)
    finally:
        for each in process.running:
            each.send_signal(signal.SIGTERM)
        codes = [each.wait(60) for each in process.running]
        hook.close()
    assert codes[-1] == 0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Played:
    """Verdicts that come at their time, and what is told."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = sorted(rows, key=lambda row: int(row["at"]))
        self.clock_ms = 0
        self.told: list[AlertEvent] = []

    def verdicts(self, wait_s: float) -> list[dict[str, Any]]:
        due = [row for row in self._rows if row["at"] <= self.clock_ms]
        self._rows = self._rows[len(due) :]
        return due

    def publish(self, events: list[AlertEvent], now_ms: int) -> None:
        self.told += events


def test_the_past_gives_what_was_told_live(tables: Tables) -> None:
    begin, end = NOW, NOW + 40 * MINUTE_MS
    lost = [
        verdict("NodeLost", begin + at, "played", node_id=f"n{at}", boot_id="b", incarnation="i", silent_s=30, evidence="")[1]
        for at in (-DAY_MS + 30 * MINUTE_MS, -HOUR_MS, 5 * MINUTE_MS)
    ]
    gang = {"job_id": "played", "silent_s": 9, "limit_s": 3}
    hung = [verdict("GangHung", begin + at, "played", **gang)[1] for at in (3 * MINUTE_MS + 123, 9 * MINUTE_MS + 1, 15 * MINUTE_MS)]
    hung.append(verdict("GangHung", begin + 10 * MINUTE_MS, "played", **(gang | {"job_id": "played-over"}))[1])
    lift = {"pool": "played", "at_ms": begin + 7 * MINUTE_MS + 77, "of": HUNG, "job_id": "played", "epoch": 1, "since_ms": 0}
    events: list[Event] = [*lost, *hung, VerdictLifted.model_validate(lift)]
    tables.put(topics.VERDICTS, events)
    spools = {n: 300 * 1024**2 if 4 <= n < 9 or 15 <= n < 16 else 0 for n in range(30)}
    beats = [beat("played", begin + n * MINUTE_MS + 20_000, pool="played", spool_bytes=size) for n, size in spools.items()]
    tables.put(topics.HEARTBEATS, beats)
    over: dict[str, Any] = {"job_id": "played-over", "attempt": 1, "epoch": 1, "node_id": "n", "pool": "played", "boot_id": "b"}
    tables.put(topics.CONTROL, [AttemptStopped(**over, stopped_at_ms=begin + 12 * MINUTE_MS + 5)])
    known = shipped().rules
    rules: list[Rule] = [known["nodes-lost"], known["spool-lag"], known["gang-hung"].model_copy(update={"resolve_after_s": 600.0})]
    rows = [verdict_rows.values(envelope_of(e, id=str(n), source="t", now_ms=0), e) for n, e in enumerate(events)]  # type: ignore[arg-type]
    bus = Played(rows)
    live = Alerting(Engine(rules), bus, tables.ask, begin)
    for ms in range(begin, end + SETTLE_MS, 1000):
        bus.clock_ms = ms
        live.turn(ms, 0)
    kinds = [(e.rule, e.key, e.since_ms, isinstance(e, AlertFired), e.at_ms) for e in bus.told if e.at_ms >= begin]
    tried = [(rule, o) for rule in rules for o in backtest(rule, tables.ask, begin, end)]
    past = [(r.name, o.fired.key, o.fired.since_ms, True, o.fired.at_ms) for r, o in tried if o.fired.labels["pool"] == "played"]
    ended = [(r, o) for r, o in tried if o.resolved_ms is not None and o.fired.labels["pool"] == "played"]
    past += [(r.name, o.fired.key, o.fired.since_ms, False, o.resolved_ms) for r, o in ended]
    assert sorted(past) == sorted(k for k in kinds if "played" in k[1])
    counts = {rule.name: sum(k[0] == rule.name and k[3] for k in kinds) for rule in rules}
    assert counts == {"nodes-lost": 1, "spool-lag": 1, "gang-hung": 3}, kinds
    assert ("gang-hung", "pool=played job_id=played-over epoch=1", begin + 10 * MINUTE_MS, False, begin + 12 * MINUTE_MS + 5) in kinds
