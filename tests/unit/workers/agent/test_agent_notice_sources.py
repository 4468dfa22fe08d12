"""Where notices come from: what people and clouds write, files that come and go, a metadata service that answers oddly."""

import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.waiting import until
from trainhouse.workers.agent.core import Noticed, NoticeWithdrawn
from trainhouse.workers.agent.node.metadata import MetadataService
from trainhouse.workers.agent.node.notice_formats import TerminationNotice, by_file, by_metadata
from trainhouse.workers.agent.node.notice_sources import NoticeFile, NoticeSourceError, NoticeWatch
from trainhouse.workers.agent.settings import AgentSettings

NOON = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", TerminationNotice("file", "")),
        (" \n", TerminationNotice("file", "")),
        ("60", TerminationNotice("file", "", 61_000)),
        ("60s the rack is moved\n", TerminationNotice("file", "the rack is moved", 61_000)),
        ("2026-01-31T12:00:00Z spot", TerminationNotice("file", "spot", NOON)),
        ("2026-01-31T13:00:00+01:00", TerminationNotice("file", "", NOON)),
        ('{"deadline_s": 0.5, "reason": "x"}', TerminationNotice("file", "x", 1_500)),
        ('{"deadline": "2026-01-31T12:00:00Z"}', TerminationNotice("file", "", NOON)),
        ('{"reason": "x"}', TerminationNotice("file", "x")),
    ],
)
def test_a_file_says_when_and_why(text: str, said: TerminationNotice) -> None:
    assert by_file(text, 1_000) == said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("maintenance at noon", "'maintenance' is no time"),
        ("-3 x", "-3 is no number of seconds"),
        ("nan", "no number of seconds"),
        ("1e99", "no number of seconds"),
        ("2026-01-31T12:00:00", "has no zone"),
        ('{"deadline": "soon"}', "'soon' is no time"),
        ('{"deadline_s": "x"}', "could not convert"),
        ('{"when": 3}', "not when"),
        ("{", "Expecting"),
        ('{"a":' + "[" * 4_000, "recursion"),
    ],
)
def test_what_cannot_be_read_is_a_notice_all_the_same_and_says_so(text: str, says: str) -> None:
    found = by_file(text, 0)
    assert found.source == "file" and found.deadline_ms is None and says in found.problem


AZURE = """{"DocumentIncarnation": 2, "Events": [
 {"EventId": "a", "EventType": "Freeze", "EventStatus": "Scheduled", "Resources": ["vm_1"], "NotBefore": "Sat, 31 Jan 2026 12:00:00 GMT"},
 {"EventId": "b", "EventType": "Preempt", "EventStatus": "Scheduled", "Resources": ["vm_1"], "NotBefore": "Sat, 31 Jan 2026 12:00:00 GMT"},
 {"EventId": "c", "EventType": "Reboot", "EventStatus": "Started", "Resources": ["vm_2"], "NotBefore": "", "Description": "by hand"}]}"""


@pytest.mark.parametrize(
    ("body", "resource", "said"),
    [
        ('{"action": "terminate", "time": "2026-01-31T12:00:00Z"}', None, TerminationNotice("aws", "spot terminate", NOON)),
        ('{"action": "hibernate"}', None, TerminationNotice("aws", "spot hibernate")),
        ("TRUE", None, TerminationNotice("gcp", "preempted")),
        ("FALSE\n", None, None),
        ("NONE", None, None),
        ("MIGRATE_ON_HOST_MAINTENANCE", None, None),
        ("TERMINATE_ON_HOST_MAINTENANCE", None, TerminationNotice("gcp", "TERMINATE_ON_HOST_MAINTENANCE")),
        (AZURE, "vm_1", TerminationNotice("azure", "Preempt", NOON)),
        (AZURE, "vm_2", TerminationNotice("azure", "Reboot by hand")),
        (AZURE, "vm_3", None),
        (AZURE, None, TerminationNotice("azure", "Reboot by hand")),
        ('{"DocumentIncarnation": 1, "Events": []}', "vm_1", None),
    ],
)
def test_three_clouds_are_understood(body: str, resource: str | None, said: TerminationNotice | None) -> None:
    assert by_metadata(body, resource) == said


@pytest.mark.parametrize("body", ["<html>", '{"a": 1}', "[]", "3"])
def test_another_shape_is_refused(body: str) -> None:
    with pytest.raises(ValueError):
        by_metadata(body, None)


def test_a_file_is_read_when_it_is_whole_again_when_it_changes_and_not_when_it_is_of_an_earlier_boot(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    source = NoticeFile(path, booted_ms=1_000_000)
    assert source.look() is None
    path.write_text("60 a")
    os.utime(path, (2_000, 2_000))
    assert source.look() is None, "who writes it may not be done"
    assert source.look() == TerminationNotice("file", "a", 2_060_000)
    path.write_text("30 b")
    os.utime(path, (2_001, 2_001))
    assert source.look() == TerminationNotice("file", "a", 2_060_000)
    assert source.look() == source.look() == TerminationNotice("file", "b", 2_031_000)
    path.unlink()
    assert source.look() is None
    path.write_text("60 old")
    os.utime(path, (900, 900))
    source.look()
    with pytest.raises(NoticeSourceError, match="booted"):
        source.look()


def test_what_a_source_says_is_told_once_and_then_its_withdrawal() -> None:
    class Scripted:
        name, interval_s = "scripted", 0.001

        def __init__(self) -> None:
            one, two = TerminationNotice("gcp", "preempted"), TerminationNotice("gcp", "again", 5_000)
            self.script: list[TerminationNotice | NoticeSourceError | None] = [
                None,
                one,
                one,
                NoticeSourceError("no answer"),
                one,
                None,
                two,
            ]

        def look(self) -> TerminationNotice | None:
            found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if isinstance(found, NoticeSourceError):
                raise found
            return found

    heard: list[Noticed | NoticeWithdrawn] = []
    source = Scripted()
    watch = NoticeWatch([source], heard.append, default_s=30, clock_ms=lambda: 1_000)
    watch.start()
    until(lambda: len(heard) >= 3, lambda: heard, timeout_s=60, every_s=0.01)
    watch.close()
    assert heard == [Noticed("gcp", "preempted", 31_000), NoticeWithdrawn("gcp"), Noticed("gcp", "again", 5_000)]


def test_a_deadline_that_is_over_while_the_machine_is_still_here_was_wrong() -> None:
    watch = NoticeWatch([], lambda _: None, default_s=30, clock_ms=lambda: 10_000)
    assert watch.noticed(TerminationNotice("file", "x", 9_000)).deadline_ms == 40_000
    assert watch.noticed(TerminationNotice("file", "x", problem="what is this")).reason == "x [what is this]"


class Metadata(BaseHTTPRequestHandler):
    """Wants a token as AWS does, and answers what the test says."""

    answers: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[tuple[str, str, str | None]]] = []

    def do_PUT(self) -> None:
        self._answer(200 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400, "t0ken")

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Metadata-Flavor"], self.headers["X-aws-ec2-metadata-token"]))
        self._answer(*(self.answers.pop(0) if self.headers["X-aws-ec2-metadata-token"] == "t0ken" else (401, "")))

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        Metadata.answers.clear()
        Metadata.asked.clear()
        yield server
        server.shutdown()


def test_a_metadata_service_is_asked_with_its_token(metadata: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # not for a service that speaks to this machine alone
    source = MetadataService(f"http://127.0.0.1:{metadata.server_port}/latest/meta-data/spot/instance-action", 1.0)
    Metadata.answers += [(404, ""), (200, '{"action": "stop", "time": "2026-01-31T12:00:00Z"}'), (500, ""), (200, "<html>")]
    assert source.look() is None
    assert source.look() == TerminationNotice("aws", "spot stop", NOON)
    assert [token for _, _, token in Metadata.asked] == [None, "t0ken", "t0ken"] and Metadata.asked[0][1] == "Google"
    for why in ("500", "known"):
        with pytest.raises(NoticeSourceError, match=f"{why}|Expecting"):
            source.look()


def test_a_metadata_service_that_is_away_says_nothing() -> None:
    with pytest.raises(NoticeSourceError):
        MetadataService("http://127.0.0.1:1/x", 1.0).look()


def test_settings_name_the_file(tmp_path: Path) -> None:
    assert AgentSettings(dir=tmp_path / "a").resolved().notice_file == tmp_path / "a" / "notice"
    with pytest.raises(ValueError, match="notice_url"):
        AgentSettings(notice_url="ftp://x")


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b'{"a":' * 5_000,
        b"",
    ],
)
def test_whatever_a_service_answers_it_is_only_away(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:

        def serve() -> None:
            with service.accept()[0] as peer:
                peer.recv(4_096)
                peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(NoticeSourceError):
            MetadataService(f"http://127.0.0.1:{service.getsockname()[1]}/x", 1.0).look()


def test_a_source_that_breaks_is_looked_at_again() -> None:
    class Broken:
        name, interval_s = "broken", 0.001
        looks = 0

        def look(self) -> TerminationNotice | None:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("nobody thought of this")
            return TerminationNotice("file", "all the same")

    heard: list[Noticed | NoticeWithdrawn] = []
    watch = NoticeWatch([Broken()], heard.append, default_s=30, clock_ms=lambda: 1_000)
    watch.start()
    until(lambda: heard, timeout_s=60, every_s=0.01)
    watch.close()
    assert heard == [Noticed("file", "all the same", 31_000)]
