"""Which way a client takes, and the pure parts of the way over the gateway: streams, refusals, rows, a job's card."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trainhouse.cli.main import build
from trainhouse.cli.shared import complete, settings_lookup
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client import (
    AccessDeniedError,
    ChangeRefusedError,
    Happening,
    InvalidSettingsError,
    InvalidSpecError,
    JobFilter,
    Line,
    NoReplyError,
    NotReachableError,
    QueryError,
    Submitted,
    TrainhouseClient,
    UnknownJobError,
    connect,
)
from trainhouse.client import job as job_module
from trainhouse.client.async_client import AsyncClient
from trainhouse.client.backend_protocol import Retuned
from trainhouse.client.errors import JobEndedError
from trainhouse.client.gateway.backend import ByGateway
from trainhouse.client.gateway.exchange import GatewayAnswer, Request, everything
from trainhouse.client.gateway.exchange import error_of as refusal
from trainhouse.client.gateway.reads import flat, job_path, status, status_of
from trainhouse.client.gateway.sse import EventParser
from trainhouse.client.gateway.streaming import Stream
from trainhouse.client.gateway.watch import answering_status
from trainhouse.client.gateway.writes import Written, change, review
from trainhouse.client.kafka.backend import ByKafka
from trainhouse.client.notebook import LEFT, card, show_live
from trainhouse.client.sql import Table
from trainhouse.events import JobId, JobState, JobStatus, Limits, ReviewAction
from trainhouse.events.settings import KafkaSettings

GATEWAY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Trainhouse near."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "DATA_DIR", "KAFKA_BOOTSTRAP", "GATEWAY_URL", "GATEWAY_TOKEN", "CLICKHOUSE_URL"):
        monkeypatch.delenv(f"TRAINHOUSE_{name}", raising=False)


def test_the_gateway_is_the_way_only_where_no_kafka_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert isinstance(connect().way, ByKafka)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", GATEWAY)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_TOKEN", "a.b.c")
    assert isinstance(connect().way, ByGateway)
    assert isinstance(connect(kafka="127.0.0.1:1").way, ByKafka)
    (tmp_path / "t.toml").write_text('[kafka]\nbootstrap = "127.0.0.1:2"\n')
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(tmp_path / "t.toml"))
    assert connect().way.place == "Kafka at 127.0.0.1:2"
    assert connect(gateway=GATEWAY, token="t").way.place == f"the gateway at {GATEWAY}"
    with pytest.raises(InvalidSettingsError, match="one way"):
        connect(gateway=GATEWAY, kafka="127.0.0.1:1")


def test_a_token_is_needed_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSettingsError, match="TRAINHOUSE_GATEWAY_TOKEN"):
        connect(gateway=GATEWAY)
    with pytest.raises(InvalidSettingsError, match="copy it again") as wrong:
        connect(gateway=GATEWAY, token="secret\nX-Admin: 1")
    assert "secret" not in str(wrong.value)
    with pytest.raises(InvalidSettingsError, match="https://host"):
        connect(gateway="file:///etc/passwd", token="t")
    assert "secret" not in repr(connect(gateway=GATEWAY, token="secret").way)


def test_an_environment_with_a_gateway_alone_looks_for_no_folder() -> None:
    alone = {"TRAINHOUSE_GATEWAY_URL": GATEWAY}
    assert settings_lookup.only_gateway(None, alone)
    assert not settings_lookup.only_gateway(Path("x"), alone) and not settings_lookup.only_gateway(None, {})
    assert not settings_lookup.only_gateway(None, alone | {"TRAINHOUSE_DATA_DIR": "/d"})
    assert not settings_lookup.only_gateway(None, alone | {"TRAINHOUSE_KAFKA_BOOTSTRAP": "k"})


@pytest.mark.parametrize(
    "command",
    [
        ["exec", "j", "--", "ls"],
        ["stack", "j"],
        ["replay", "--verify"],
        ["secrets", "list"],
        ["policy", "show", "p"],
        ["what-if", "--policy", "x"],
        ["import", "tensorboard", "."],
        ["projections", "rebuild"],
        ["token", "show"],
        ["token", "revoke", "x"],
    ],
)
def test_what_needs_kafka_says_so(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", GATEWAY)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_TOKEN", "t")
    done = CliRunner().invoke(build(), command)
    assert isinstance(done.exception, CliError) and done.exception.code == Exit.CONFIG, done.output
    assert "needs Kafka" in str(done.exception) and "--data-dir" in str(done.exception) and GATEWAY in str(done.exception)


def test_a_profile_is_asked_of_the_gateway_where_there_is_no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", GATEWAY)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_TOKEN", "t")
    done = CliRunner().invoke(build(), ["profile", "j"])
    assert isinstance(done.exception, NotReachableError) and GATEWAY in str(done.exception), done.output


def test_a_gateway_that_is_away_is_said_in_a_sentence() -> None:
    client = connect(gateway=GATEWAY, token="t")
    with pytest.raises(NotReachableError, match="TRAINHOUSE_GATEWAY_URL"):
        client.status("j")


def problem(number: int, detail: str, **more: object) -> GatewayAnswer:
    import json

    return GatewayAnswer(number, json.dumps({"status": number, "detail": detail, **more}).encode(), {})


def test_refusals_mean_the_same_as_over_kafka() -> None:
    assert isinstance(refusal(problem(403, "no")), AccessDeniedError)
    assert isinstance(refusal(problem(401, "no")), AccessDeniedError)
    assert isinstance(refusal(problem(422, "spec.gang: too many")), InvalidSpecError)
    assert isinstance(refusal(problem(400, "Syntax error", code=62)), QueryError)
    assert isinstance(refusal(problem(409, "ended")), ChangeRefusedError)
    assert isinstance(refusal(problem(503, "busy")), NotReachableError)
    assert "502" in str(refusal(GatewayAnswer(502, b"<html>bad gateway</html>", {})))


def test_an_unknown_job_and_a_page_that_is_no_answer() -> None:
    flow = status("../../whoami?x=1")
    request = next(flow)
    assert request.path == "/v1/training-jobs/..%2F..%2Fwhoami%3Fx%3D1"
    with pytest.raises(UnknownJobError, match="no job"):
        flow.send(problem(404, "there is none"))
    flow = status("j")
    next(flow)
    with pytest.raises(NotReachableError, match="no JSON"):
        flow.send(GatewayAnswer(200, b"<html>", {}))
    assert job_path("j", "logs") == "/v1/training-jobs/j/logs"


def test_a_listing_is_read_page_by_page() -> None:
    flow = everything("/v1/nodes", {"limit": 2})
    assert next(flow) == Request("GET", "/v1/nodes", {"limit": 2})
    second = flow.send(GatewayAnswer(200, b'{"items": [{"a": 1}], "next_cursor": "c"}', {}))
    assert second.params["cursor"] == "c"
    with pytest.raises(StopIteration) as end:
        flow.send(GatewayAnswer(200, b'{"items": [{"a": 2}], "next_cursor": null}', {}))
    assert end.value.value == [{"a": 1}, {"a": 2}]


def test_times_and_statuses_of_the_gateway_are_the_clients_own() -> None:
    assert flat({"at": "1970-01-01T00:00:01.5Z", "ended_at": None, "x": 1}) == {"at_ms": 1500, "ended_at_ms": None, "x": 1}
    refused = {"job_id": "j", "status_seq": -1, "state": "REJECTED", "pool": "", "submission_id": "s", "updated_at": "1970-01-01T00:00:00Z"}
    found = status_of(refused)
    assert (found.state, found.status_seq, found.pool, found.submission_id) == (JobState.REJECTED, 0, None, "s")


def test_a_status_of_another_spec_means_that_what_was_sent_was_refused() -> None:
    job = Submitted(JobId.parse("j"), "event-2", None, "b" * 64)
    mine, theirs = (status_of({"job_id": "j", "status_seq": 4, "state": "SUCCEEDED", "spec_sha256": c * 64}) for c in "ba")
    with pytest.raises(StopIteration) as end:
        next(answering_status(mine, job, "tok"))
    assert end.value.value is mine
    with pytest.raises(StopIteration) as end:
        next(answering_status(theirs, Submitted(JobId.parse("j"), "", None), None))
    assert end.value.value is theirs
    for refused, state in (("the id is another job's", JobState.REJECTED), (None, None)):
        flow = answering_status(theirs, job, "tok")
        assert next(flow) == Request("GET", "/v1/training-jobs/j/terms", {"event_id": "event-2", "after": "tok"})
        with pytest.raises(StopIteration) as end:
            flow.send(GatewayAnswer(200, orjson.dumps({"priority": 1, "limits": {}, "refused": refused}), {}))
        found = end.value.value
        assert (found and (found.state, found.reason, found.submission_id)) == (state and (state, refused, "event-2"))


class Recorded(AsyncClient):
    """What it would ask of the gateway; the answer is the same to all."""

    async def run(self, flow: Any) -> Any:
        self.last = next(flow)
        with pytest.raises(StopIteration) as end:
            flow.send(
                GatewayAnswer(
                    200, b'{"job_id": "j", "event_id": "e", "after": "tok", "state": "RUNNING", "status_seq": 1, "items": []}', {}
                )
            )
        return end.value.value


def test_the_asynchronous_client_reads_what_it_wrote_and_what_its_blocking_one_did() -> None:
    async def work() -> None:
        blocking = connect(gateway=GATEWAY, token="t")
        async with Recorded(blocking) as client:
            await client.status("j")
            assert client.last.params == {}
            await client.cancel("j")
            await client.status("j")
            assert client.last.params == {"after": "tok"}
            assert isinstance(blocking.way, ByGateway) and blocking.way.after("j") == "tok"
            blocking.way.remember(Written("k", "e", "other"))
            await client.events("k")
            assert client.last.params["after"] == "other"

    asyncio.run(work())


def answered(flow: Any, **of_path: Any) -> list[str]:
    """Runs a flow; each request is answered by the end of its path. Gives the paths."""
    asked, request = [], next(flow)
    while True:
        end = request.path.rpartition("/")[2]
        asked.append(end)
        try:
            request = flow.send(GatewayAnswer(200, orjson.dumps(of_path[end]), {}))
        except StopIteration:
            return asked


def test_a_review_over_the_gateway_waits_for_the_schedulers_answer() -> None:
    sent = {"job_id": "j", "event_id": "e", "after": "tok"}
    terms = {"priority": 50, "limits": {}, "refused": None}
    event = {"job_id": "j", "action": "go_on", "event_id": "e", "pool": "p", "user": "ana", "at_ms": 1}
    row = dict.fromkeys(("summary", "event_id", "node_id", "source_topic"), "") | {"time": "1970-01-01T00:00:01Z", "epoch": None}
    row |= {"type": "trainhouse.job.reviewed.v1", "source_partition": 0, "source_offset": 0, "event": event}
    answering_status = {"items": [row], "next_cursor": None}
    asked = answered(review("j", ReviewAction.GO_ON, "fine", 0.1, 30, None), review=sent, terms=terms, events=answering_status)
    assert asked == ["review", "terms", "events"]
    with pytest.raises(ChangeRefusedError, match="it is RUNNING"):
        answered(review("j", ReviewAction.GO_ON, "", None, 30, None), review=sent, terms=terms | {"refused": "it is RUNNING"})
    with pytest.raises(NoReplyError, match="no answer within"):
        answered(review("j", ReviewAction.GO_ON, "", None, 0, None), review=sent, terms=terms, events={"items": [], "next_cursor": None})


def test_a_change_over_the_gateway_is_answered_by_its_own_request_whatever_was_changed_since() -> None:
    sent = {"job_id": "j", "event_id": "e", "after": "tok"}
    running = {"job_id": "j", "status_seq": 4, "state": "RUNNING"}

    def outcome(answer: dict[str, Any], last: dict[str, Any], timeout_s: float = 30, most: int = 1_000) -> Any:
        flow = change("j", 5, {}, timeout_s, None)
        request, first = next(flow), True
        for _ in range(most):
            end = request.path.rpartition("/")[2]
            of_path = {"terms": {"priority": 50, "limits": {}, "refused": None} if first else answer, "change": sent, "j": last}
            first = False
            try:
                request = flow.send(GatewayAnswer(200, orjson.dumps(of_path[end]), {}))
            except StopIteration as stop:
                return stop.value
        raise AssertionError(f"it asks on after {most} answers")

    now = {"priority": 7, "limits": {}, "refused": None}
    limits = Limits()
    changed = {"priority": 5, "limits": {}}
    assert outcome(now | {"answered": True, "changed": changed}, running) == Retuned(5, limits), "another changed it again since"
    assert outcome(now | {"answered": True, "changed": None}, running) is None
    assert outcome(now | {"priority": 5, "answered": False, "changed": None}, running, 0.2) == Retuned(5, limits)
    assert outcome(now | {"priority": 5}, running, most=3) == Retuned(5, limits), "a gateway of before, at once"
    of_before = {"answered": None, "changed": None}
    assert outcome(now | {"priority": 5} | of_before, running, most=3) == Retuned(5, limits), "a gateway on tables of before, at once"
    with pytest.raises(NoReplyError):
        outcome(now | {"answered": False, "changed": None}, running, 0.2)
    with pytest.raises(JobEndedError):
        outcome(now | {"answered": True, "changed": None}, running | {"state": "SUCCEEDED"})


class Away:
    """SQL that does not answer."""

    def table(self, *_: Any) -> Any:
        raise NotReachableError("ClickHouse at x does not answer")

    raw = table


def test_tables_that_are_away_are_told_where_kafka_answers_instead(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = status_of({"job_id": "j", "status_seq": 4, "state": "SUCCEEDED", "updated_at": "1970-01-01T00:00:01Z"})
    monkeypatch.setattr(ByKafka, "statuses", lambda self: {"j": status})
    monkeypatch.setattr("trainhouse.client.kafka.job_events.happenings", lambda *_: [Happening(1, "t", "s")])
    way = ByKafka(KafkaSettings(), Away(), lambda code: pytest.fail("no code is sent"))
    assert [row["job_id"] for row in way.jobs(JobFilter(), 9)] == ["j"] and len(way.events("j", None, None, None)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "ClickHouse at x does not answer; reading the status topic instead",
        "ClickHouse at x does not answer; reading Kafka instead",
    ]


GONE = {
    "job_id": "j",
    "status_seq": 4,
    "state": "FAILED",
    "reason": "rank 0 exited with code 1",
    "spec_sha256": "a" * 64,
    "finished_at_ms": 7,
    "updated_at_ms": 7,
    "source_topic": "trainhouse.status",
    "source_partition": 1,
    "source_offset": 9,
}


class Tables:
    """SQL that knows these jobs; `asked` are the queries."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows

    def table(self, query: str, values: Any = None) -> Table:
        found = [row for row in self.rows if f"job_id = '{row['job_id']}'" in query]
        return Table(tuple(found[0]), tuple(tuple(row.values()) for row in found)) if found else Table((), ())

    def raw(self, *_: Any) -> bytes:
        raise AssertionError("no bytes are asked for")


def way_of(monkeypatch: pytest.MonkeyPatch, topic: dict[str, JobStatus], *rows: dict[str, Any]) -> tuple[ByKafka, list[Any]]:
    """Where the status topic holds what is given; from where it was read."""
    read: list[Any] = []

    def newest(self: ByKafka, since: Any = None) -> dict[str, JobStatus]:
        read.append(since and since.ends)
        return topic

    monkeypatch.setattr(ByKafka, "_newest", newest)
    return ByKafka(KafkaSettings(), Tables(*rows), lambda code: pytest.fail("no code is sent")), read


def test_a_job_that_the_status_topic_gave_up_is_answered_from_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    way, read = way_of(monkeypatch, {}, GONE)
    found = way.status("j")
    assert (found.state, found.reason, found.status_seq, found.finished_at_ms) == (JobState.FAILED, "rank 0 exited with code 1", 4, 7)
    assert read == [{1: 9}], "the whole topic need not be read"
    journal = GONE | {"source_topic": "trainhouse.decisions"}
    way, read = way_of(monkeypatch, {}, journal)
    assert way.status("j").state is JobState.FAILED and read == []


def test_what_the_topic_has_comes_first_and_a_refusal_in_the_tables_last(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = JobStatus(job_id=JobId("j"), status_seq=5, state=JobState.RUNNING)
    refused = GONE | {"state": "REJECTED", "status_seq": -1, "source_topic": "trainhouse.dead-letters"}
    assert way_of(monkeypatch, {"j": newer}, refused)[0].status("j") is newer
    assert way_of(monkeypatch, {}, refused)[0].status("j").state is JobState.REJECTED
    with pytest.raises(UnknownJobError):
        way_of(monkeypatch, {})[0].status("j")


def test_waiting_for_a_job_that_the_topic_gave_up_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    way, _ = way_of(monkeypatch, {}, GONE)
    assert [s.state for s in way.watch(Submitted(JobId("j"), "", None), None) if s] == [JobState.FAILED]
    again = Submitted(JobId("j"), "e-1", None, "a" * 64)
    assert [s.state for s in way.watch(again, None) if s] == [JobState.FAILED], "the same job, submitted once more"


class Reader:
    """Lines that come in batches."""

    def __init__(self, *batches: list[Line]) -> None:
        self.left = list(batches)

    def more(self) -> Iterator[Line]:
        yield from self.left.pop(0) if self.left else []

    def catch_up(self, wait_s: float = 0.0) -> None:
        self.left = [batch for batch in self.left if batch]


def test_lines_are_followed_until_after_the_end() -> None:
    running, ended = (status_of({"job_id": "j", "status_seq": n, "state": s}) for n, s in ((1, "RUNNING"), (2, "SUCCEEDED")))
    one, two, late = ([Line("t", 1, 0, 0, "stdout", n, "x")] for n in range(3))
    assert list(job_module.followed([running, None, ended], Reader(one, [], two, [], [], late))) == [one, two, late]
    assert list(job_module.followed([running], Reader(one, [], late))) == [one]


STREAM = ": here\n\nid: 1\nevent: status\ndata: {\ndata: }\n\nretry: 250\n\nid: 2\r\ndata: x\u2028y\r\n\r\ndata: lost"


@given(st.integers(0, 100))
def test_events_are_whole_wherever_the_connection_breaks(cut: int) -> None:
    parser, stream = EventParser(), STREAM.encode()
    found = [*parser.take(stream[:cut]), *parser.take(stream[cut:])]
    parser.broken()
    assert [(e.kind, e.data, e.id) for e in found] == [("status", "{\n}", "1"), ("message", "x\u2028y", "2")]
    assert parser.feed("") is None


class Breaking(BaseHTTPRequestHandler):
    """A gateway's stream that tells nothing for a while and breaks; the second one tells a status."""

    protocol_version = "HTTP/1.1"
    opened: ClassVar[int] = 0

    def do_GET(self) -> None:
        type(self).opened += 1
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        beats = round(2 * PATIENCE_S / BEAT_S) if self.opened == 1 else 0
        for part in [b": still here\n\n"] * beats or [b"event: status\ndata: {}\n\n"]:
            time.sleep(BEAT_S)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.close_connection = True  # without an end of the answer, as of a process that was killed

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


PATIENCE_S, BEAT_S = 0.5, 0.05


def test_a_stream_that_told_nothing_for_long_is_still_patient_when_its_gateway_restarts() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Stream(f"http://127.0.0.1:{server.server_port}", "token", "/v1/stream", {}, give_up_s=PATIENCE_S) as stream:
            assert next(event for event in stream.events() if event is not None).kind == "status"
    finally:
        server.shutdown()
        server.server_close()


def test_an_event_has_a_bound() -> None:
    parser = EventParser()
    with pytest.raises(ValueError, match="no end"):
        for _ in range(5):
            parser.feed("data: " + "x" * 1024 * 1024)


EVIL = "<script>alert(1)</script>&\"'"


def test_a_card_shows_names_as_text() -> None:
    status = JobStatus.model_validate(
        {"job_id": "j", "status_seq": 1, "state": "RUNNING", "name": EVIL, "user": EVIL, "reason": EVIL, "step": 5, "total_steps": 10}
    )
    shown = card(EVIL, status, note=EVIL)
    assert "<script" not in shown and "&lt;script&gt;" in shown and "step 5 of 10" in shown and "50.0%" in shown
    assert "<script" not in card(EVIL, None, EVIL)


def statuses_of(*states: str, fails: BaseException | None = None) -> Generator[JobStatus, None, None]:
    for seq, state in enumerate(states, 1):
        yield status_of({"job_id": "j", "status_seq": seq, "state": state, "updated_at": "1970-01-01T00:00:01Z"})
    if fails is not None:
        raise fails


def test_what_is_no_longer_followed_is_not_left_as_if_it_were(capsys: pytest.CaptureFixture[str]) -> None:
    ended = show_live("j", statuses_of("RUNNING", "SUCCEEDED"))
    assert ended is not None and capsys.readouterr().out == "j  RUNNING\nj  SUCCEEDED\n"
    followed = statuses_of("RUNNING", fails=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        show_live("j", followed)
    assert capsys.readouterr().out.splitlines()[-1] == f"j  RUNNING  {LEFT}"
    with pytest.raises(NotReachableError):
        show_live("j", statuses_of(fails=NotReachableError("no gateway")))
    assert capsys.readouterr().out.splitlines()[-1] == "j  no status yet  no longer followed: no gateway"
    assert LEFT in card("j", next(statuses_of("RUNNING")), LEFT)


class Slow:
    """A way by Kafka whose next status takes its time; `closed` once its reader is."""

    def __init__(self) -> None:
        self.closed = False

    def watch(self, job: Submitted, timeout_s: float | None) -> Iterator[JobStatus | None]:
        try:
            yield from statuses_of("RUNNING")
            while True:
                time.sleep(0.2)
                yield None
        finally:
            self.closed = True


def test_over_kafka_waiting_ends_in_time_and_closes_its_reader() -> None:
    slow = Slow()

    async def scene() -> None:
        job = AsyncClient(TrainhouseClient(slow)).job("j")  # type: ignore[arg-type]
        with pytest.raises(TimeoutError, match="RUNNING"):
            await job.wait(0.3)
        assert slow.closed

    asyncio.run(scene())


def test_completion_is_silent_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete.jobs("x") == []
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        began = time.monotonic()
        assert complete.nodes("x") == []
        assert time.monotonic() - began < 10.0  # who is deaf never answers
    assert complete.pools("") == []
