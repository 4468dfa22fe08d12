"""The exporter's peers over real HTTP: what they take is gone, what they may take later waits, what they refuse for good is left out."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from trainhouse.projections.exporter import senders as sending
from trainhouse.projections.exporter.export_metrics import ExporterMeters
from trainhouse.projections.exporter.openlineage_runs import LineageRun, Verb
from trainhouse.projections.exporter.senders import NotDeliveredError, Sender, senders
from trainhouse.projections.exporter.service import StoppedError, patiently
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.exporter.spans import Span, span_id_of, trace_id_of
from trainhouse.projections.exporter.translate import Exported


class Peer(BaseHTTPRequestHandler):
    """Answers what it is told to, one after the other, then 200; keeps the names that it took."""

    answers: list[int]
    took: list[str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = type(self).answers.pop(0) if type(self).answers else 200
        if answer == 200 and self.path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(gzip.decompress(body))
            type(self).took += [s.name for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
        elif answer == 200:
            type(self).took.append(json.loads(body)["job"]["name"])
        self.send_response(answer)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"why")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[tuple[str, type[Peer]]]:
    kind = type("Own", (Peer,), {"answers": [], "took": []})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def told_of(count: int) -> Exported:
    trace = trace_id_of("s")
    spans = [Span(trace, span_id_of("j", n, "p"), "", f"n{n}", 1000, 2000, {"trainhouse.job_id": f"j{n}"}) for n in range(count)]
    return Exported(spans, [LineageRun(Verb.START, 1000, f"j{n}", 0, 1, f"n{n}", "p", "u", "pool") for n in range(count)])


def one(name: str, url: str, registry: CollectorRegistry) -> Sender:
    where = {"otlp_endpoint": url} if name == "traces" else {"openlineage_url": url}
    (sender,) = senders(ExporterSettings.model_validate(where | {"timeout_s": 0.2}), ExporterMeters(registry))
    return sender


def left(name: str, told: Exported) -> list[str]:
    return [span.name for span in told.spans] if name == "traces" else [run.name for run in told.runs]


@pytest.fixture(params=["traces", "lineage"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sending, "SPANS_A_REQUEST", 1)
    return str(request.param)


@pytest.mark.parametrize("answer", [400, 401, 404, 413, 422])
def test_what_a_peer_refuses_for_good_is_left_out_said_once_and_counted(name: str, answer: int, peer: tuple[str, type[Peer]]) -> None:
    url, kind = peer
    kind.answers = [answer, answer, 200, answer]
    registry, told = CollectorRegistry(), told_of(5)
    sender = one(name, url, registry)
    with capture_logs() as logs:
        sender.send(told)
    sender.close()
    assert left(name, told) == [] and [taken.removeprefix("p.") for taken in kind.took] == ["n2", "n4"]
    assert [(line["log_level"], line["peer"], line["job_id"]) for line in logs] == [("error", name, "j0"), ("error", name, "j3")]
    assert logs[0]["address"].startswith(url) and logs[0]["answer"].startswith(f"{answer} ") and logs[0]["answer"].endswith(": why")
    assert registry.get_sample_value("trainhouse_exporter_refused_total", {"peer": name}) == 3
    figure = "trainhouse_exporter_spans_total" if name == "traces" else "trainhouse_exporter_lineage_events_total"
    assert registry.get_sample_value(figure) == 2


@pytest.mark.parametrize("answer", [408, 429, 500, 503])
def test_what_a_peer_may_take_later_waits_and_what_it_took_is_not_sent_again(name: str, answer: int, peer: tuple[str, type[Peer]]) -> None:
    url, kind = peer
    kind.answers = [200, answer]
    told = told_of(3)
    sender = one(name, url, CollectorRegistry())
    with pytest.raises(NotDeliveredError, match=str(answer)):
        sender.send(told)
    assert left(name, told) == ["n1", "n2"]
    sender.send(told)
    sender.close()
    assert left(name, told) == [] and [taken.removeprefix("p.") for taken in kind.took] == ["n0", "n1", "n2"]


def test_a_peer_that_is_away_is_waited_for_until_the_end(name: str) -> None:
    told, stop = told_of(1), threading.Event()
    meters = ExporterMeters(CollectorRegistry())
    sender = one(name, "http://127.0.0.1:1", CollectorRegistry())

    def send() -> None:
        try:
            sender.send(told)
        finally:
            stop.set()

    with pytest.raises(StoppedError):
        patiently(send, stop, meters)
    sender.close()
    assert left(name, told) == ["n0"]
