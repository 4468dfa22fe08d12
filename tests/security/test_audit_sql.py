"""Who asks in SQL on the SQL port itself is in the audit: which account, in which words, with what answer, or why it was refused."""

from __future__ import annotations

import http.client
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.tables.migrated import connect_migrated
from trainhouse.events import AccessEnded, AccessGranted, AccessRefused, Envelope, Event
from trainhouse.events.runtime.counts import TOGETHER
from trainhouse.events.security.grants import TOPIC, WRITE, allowed
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import AUDIT
from trainhouse.projections.endpoint import audit_way, sql_audit
from trainhouse.projections.endpoint.audit_way import AuditWay
from trainhouse.projections.endpoint.door import Account, Door
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.endpoint.request import Query
from trainhouse.projections.endpoint.server import Admission, Endpoint
from trainhouse.projections.endpoint.sql_audit import WINDOW_MS, Ended, SqlAudit
from trainhouse.projections.errors import QueryRefusedError
from trainhouse.projections.store.clickhouse import embedded_options

MEMORY = 1024**3
OWN, GUEST = Account("trainhouse", "own-pass-1"), Account("ana", "guest-pass-1", guest=True)


@dataclass
class Kept:
    """A way that keeps what it is given."""

    events: list[Event] = field(default_factory=list)
    full: bool = False

    def offer(self, event: Event) -> bool:
        self.events.append(event)
        return True

    def turn(self) -> None:
        pass

    def take(self) -> list[Event]:
        taken, self.events = self.events, []
        return taken


@dataclass
class Port:
    """A served engine, and what its audit was told."""

    number: int
    kept: Kept
    audit: SqlAudit

    def ask(self, account: Account | None, query: str, password: str = "", **more: str) -> tuple[int, list[Event]]:
        headers = {} if account is None else {"X-ClickHouse-User": account.user, "X-ClickHouse-Key": password or account.password}
        connection = http.client.HTTPConnection("127.0.0.1", self.number, timeout=20)
        connection.request("GET", f"/?{urllib.parse.urlencode({'query': query} | more)}", headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, self.kept.take()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    folder, kept = tmp_path_factory.mktemp("sql") / "engine", Kept()
    clickhouse = connect_migrated(folder, MEMORY, 2)
    healthy = threading.Event()
    healthy.set()
    pool = ReadPool(folder, embedded_options(MEMORY, 2), Limits(30.0, 1000, 64 * 1024**2, 512 * 1024**2), 2)
    audit = SqlAudit(kept)
    try:
        with Endpoint(Admission(pool, 2, 16), "127.0.0.1", 0, healthy, Door([OWN, GUEST]), audit=audit) as served:
            yield Port(served.port, kept, audit)
    finally:
        pool.close()
        clickhouse.close()


@pytest.mark.parametrize("account", [OWN, GUEST])
def test_a_question_is_told_with_its_words_rows_and_bytes(port: Port, account: Account) -> None:
    status, (began, ended) = port.ask(account, f"SELECT number AS {account.user} FROM numbers(3) FORMAT JSONEachRow")
    assert status == 200 and isinstance(began, AccessGranted) and isinstance(ended, AccessEnded)
    assert (began.sub, began.access, began.address) == (account.user, "sql", "127.0.0.1") and "numbers(3)" in began.text
    assert (ended.access_id, ended.status, ended.rows) == (began.access_id, 200, 3) and ended.size_bytes > 20


def test_a_question_that_the_gate_refuses_is_told_with_the_reason(port: Port) -> None:
    for account in (OWN, GUEST):
        status, (began, ended) = port.ask(account, "SELECT * FROM file('/etc/passwd')")
        assert isinstance(began, AccessGranted) and "file('/etc/passwd')" in began.text
        assert isinstance(ended, AccessEnded) and ended.status == status >= 400 and ended.reason


def test_the_same_failing_question_is_told_each_time(port: Port) -> None:
    assert [len(port.ask(OWN, "DROP TABLE jobs_rows")[1]) for _ in range(3)] == [2, 2, 2]


def test_a_wrong_password_is_told_and_no_password_is_in_it(port: Port) -> None:
    status, told = port.ask(OWN, "SELECT 'mine'", password="wrong-pass-9")
    (refused,) = told
    assert status == 401 and isinstance(refused, AccessRefused) and refused.sub == "" and "Authentication failed" in refused.reason
    status, told = port.ask(GUEST, "SELECT {p:String}", param_p="eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbmEi.c2ln", default_format="TSV")
    said = repr([event.model_dump() for event in told])
    assert "guest-pass-1" not in said and "wrong-pass-9" not in said and "parameters" in said and "c2ln" not in said


def test_an_account_whose_name_is_no_text_is_refused_and_told(port: Port) -> None:
    port.audit.close()  # refusals of before are told, and those that come now are not counted with them
    port.kept.take()
    status, told = port.ask(Account("ana\xff", "guest-pass-1"), "SELECT 1")
    (refused,) = told
    assert status == 401 and isinstance(refused, AccessRefused) and refused.reason.startswith("ana?: Authentication failed")


def question(text: str) -> Query:
    return Query(text, {}, "TSV", "", "", None)


def test_what_services_ask_again_and_again_is_counted_and_the_counts_add_up() -> None:
    kept, now = Kept(), [1_000_000]
    audit = SqlAudit(kept, clock_ms=lambda: now[0])
    for _ in range(500):
        asked = audit.began(OWN, "127.0.0.1", question("SELECT 1"))
        audit.ended(asked, Ended(200, 1, 10), 0.001)
    assert [type(e) for e in kept.events] == [AccessGranted, AccessEnded]
    now[0] += WINDOW_MS
    audit.turn()
    counts = [e.count for e in kept.events if isinstance(e, AccessGranted)]
    assert counts == [1, 499] and kept.events[-1].size_bytes == 4990  # type: ignore[attr-defined]


def test_a_guests_questions_are_never_counted_together() -> None:
    kept = Kept()
    audit = SqlAudit(kept)
    for _ in range(50):
        audit.ended(audit.began(GUEST, "127.0.0.1", question("SELECT 1")), Ended(200), 0)
    assert len(kept.events) == 100


def test_a_flood_of_different_ones_keeps_its_bounds_and_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_audit, "MAX_KINDS", 50)
    kept, now = Kept(), [1_000_000]
    audit = SqlAudit(kept, clock_ms=lambda: now[0])
    for n in range(200):
        audit.ended(audit.began(OWN, "127.0.0.1", question(f"SELECT {n}")), Ended(200, 1, 10), 0.001)
    now[0] += WINDOW_MS
    audit.turn()
    granted = [e for e in kept.events if isinstance(e, AccessGranted)]
    assert sum(e.count for e in granted) == 200 and any(e.text == TOGETHER for e in granted) and len(granted) < 60


def test_where_the_audit_is_required_nothing_is_answered_that_cannot_be_told() -> None:
    with pytest.raises(QueryRefusedError, match="audit"):
        SqlAudit(Kept(full=True), required=True).began(GUEST, "127.0.0.1", question("SELECT 1"))
    assert SqlAudit(Kept(full=True)).began(GUEST, "127.0.0.1", question("SELECT 1")).access_id


def test_what_the_brokers_do_not_take_is_counted_beyond_the_bound() -> None:
    way = AuditWay(KafkaSettings(bootstrap="127.0.0.1:1"), 3)
    for _ in range(5):
        way.offer(AccessRefused(at_ms=1, since_ms=1, status=401, action="SQL port"))
    assert way.full and way.lost == 2
    way.turn()
    assert way.lost == 2, "what was lost is told when there is room, not before"
    way.close()


class Client:
    """A producer with room for so many."""

    def __init__(self, *_: object, **__: object) -> None:
        self.room = 0
        self.sent: list[Event] = []

    def send(self, topic: str, envelope: Envelope, on_ack: Callable[[object, object], None]) -> None:
        if not self.room:
            raise BufferError("Local: Queue full")
        self.room -= 1
        self.sent.append(envelope.event)
        on_ack(None, None)

    def poll(self, timeout_s: float = 0.0) -> None:
        pass


def test_what_was_lost_is_counted_until_the_brokers_have_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's buffer may be full of bytes long before it is full of events."""
    monkeypatch.setattr(audit_way, "EventProducer", Client)
    way = AuditWay(KafkaSettings(), 10)
    client: Any = way._producer
    kept = [way.offer(AccessRefused(at_ms=1, since_ms=1, status=401, action="SQL port")) for _ in range(5)]
    assert kept == [False] * 5 and not way.full
    way.turn()
    way.turn()
    client.room = 1
    way.turn()
    (told,) = client.sent
    assert way.lost == 5 == told.count
    audit = SqlAudit(way, required=True)
    with pytest.raises(QueryRefusedError, match="audit"):
        audit.began(GUEST, "::1", Query("SELECT 1", {}, "JSON", "", "", None))


def test_the_projector_may_tell_the_audit_and_nothing_else_of_the_platform() -> None:
    assert [topic.name for topic in sql_topics() if allowed("projector", TOPIC, topic.name, WRITE)] == [AUDIT]


def sql_topics() -> list:  # type: ignore[type-arg]
    from trainhouse.events.wire.topics import TOPICS

    return list(TOPICS)
