"""Figures, traces and lineage of a real stack: every process answers Prometheus, a real job becomes one trace and one run.

The receiver is a real HTTP server that reads what collectors read: OTLP's protobuf and OpenLineage's JSON.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.client.errors import UnknownJobError
from trainhouse.deploy.local.layout import METERED, read_toml
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.deploy.local.stack_state import ps
from trainhouse.events import JobSubmitted
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.ids import EventId, JobId
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import JOBS

TRAIN = """\
import torch
from trainhouse.workers import Session

model = torch.nn.Linear(2, 1)
with Session.start() as session:
    session.track(model=model)
    for step in session.steps(total=4, save_every_steps=2):
        session.log(loss=float(step))
"""
FAUST = ("trainhouse_faust_records_total", "trainhouse_faust_event_seconds_count", "trainhouse_faust_assigned_partitions")
# What each process must tell of its own work, once jobs ran.
OWN = {
    "intake": (
        "trainhouse_intake_screened_records_total",
        "trainhouse_intake_inputs_total",
        "trainhouse_intake_decision_seconds_count",
        *FAUST,
    ),
    "scheduler": (
        "trainhouse_scheduler_inputs_total",
        "trainhouse_scheduler_decision_seconds_count",
        "trainhouse_scheduler_records_total",
        *FAUST,
    ),
    "detector": ("trainhouse_detector_heartbeats_total", "trainhouse_detector_nodes", "trainhouse_detector_tick_seconds_count", *FAUST),
    # It takes records of jobs while a trial is open, and there is no study here.
    "tuner": ("trainhouse_tuner_records_total", "trainhouse_tuner_decision_seconds_count", "trainhouse_faust_assigned_partitions"),
    "projector": ("trainhouse_projector_rows_total", "trainhouse_projector_records_total", "trainhouse_projector_ingest_lag_seconds_count"),
    "alerts": ("trainhouse_alerts_rule_seconds_count",),
    "agent": ("trainhouse_agent_heartbeats_total", "trainhouse_agent_records_total"),
}
SPANS = {"decision", "first step", "intake", "job start", "launch", "wait for devices"}
PARENT_TRACE, PARENT_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"  # pragma: allowlist secret


@dataclass
class Receiver:
    """A collector and a lineage service in one; `failing` makes it refuse, as one that is overloaded does."""

    port: int = 0
    failing: bool = False
    refused: int = 0
    spans: list[Any] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> int:
        if self.failing:
            self.refused += 1
            return 503
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
        elif path == "/api/v1/lineage":
            self.runs.append(json.loads(body))
        else:
            return 404
        return 200

    def of(self, job_id: str) -> list[Any]:
        return [s for s in self.spans if any(a.key == "trainhouse.job_id" and a.value.string_value == job_id for a in s.attributes)]

    def runs_of(self, job_id: str) -> list[dict[str, Any]]:
        return [r for r in self.runs if {"key": "job_id", "source": "TRAINHOUSE", "value": job_id} in r["run"]["facets"]["tags"]["tags"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    told = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.send_response(told.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Exporter:
    """The real process, again after it was killed."""

    stack: LiveStack
    receiver: Receiver
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        address = f"http://127.0.0.1:{self.receiver.port}"
        settings = {"TRAINHOUSE_EXPORTER_OTLP_ENDPOINT": address, "TRAINHOUSE_EXPORTER_OPENLINEAGE_URL": address}
        environment = self.stack.environment | settings | {"TRAINHOUSE_CONFIG": str(self.stack.data_dir / "trainhouse.toml")}
        command = [sys.executable, "-m", "trainhouse.cli.main", "run", "exporter"]
        seen = self.log.read_text().count('"event": "telling"') if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stderr=output, preexec_fn=die_with_parent())
        until(lambda: self.log.read_text().count('"event": "telling"') > seen, lambda: self.log.read_text()[-2000:])

    def end(self, signum: int) -> int:
        assert self.process is not None
        os.kill(self.process.pid, signum)
        return self.process.wait(60)


@pytest.fixture
def exporter(stack: LiveStack, receiver: Receiver, tmp_path: Path) -> Iterator[Exporter]:
    running = Exporter(stack, receiver, tmp_path / "exporter.log")
    running.start()
    yield running
    if running.process is not None and running.process.poll() is None:
        running.end(signal.SIGKILL)


def submitted(stack: LiveStack, folder: Path, name: str, traceparent: str | None) -> str:
    """A job with a parent of its own, as a service would send it."""
    job_id = f"{name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    fields = {"name": name, "runtime": {"command": ["python", "-c", TRAIN]}, "data": {"uri": "s3://corpus/wiki", "sha256": "a" * 64}}
    event = JobSubmitted(job_id=JobId.parse(job_id), spec=JobSpec.model_validate(fields))
    producer = EventProducer(KafkaSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["kafka"]))
    producer.send(JOBS, Envelope(EventId.parse(f"{job_id}:asked"), "test", event, traceparent=traceparent), key=job_id)
    producer.flush()
    return job_id


def ended(stack: LiveStack, job_id: str) -> bool:
    """Whether the job is known and has ended; what was just submitted is not known yet."""
    try:
        return stack.client().status(job_id).state.final
    except UnknownJobError:
        return False


def test_a_job_becomes_one_trace_and_one_run_also_when_the_exporter_is_killed(
    stack: LiveStack, exporter: Exporter, receiver: Receiver, tmp_path: Path
) -> None:
    job_id = submitted(stack, tmp_path, "traced", f"00-{PARENT_TRACE}-{PARENT_SPAN}-01")
    until(lambda: receiver.of(job_id), lambda: exporter.log.read_text()[-2000:])
    exporter.end(signal.SIGKILL)  # in the middle of the job's start, or just after it
    receiver.failing = True
    until(lambda: ended(stack, job_id), f"the end of {job_id}")
    exporter.start()
    until(lambda: receiver.refused, lambda: exporter.log.read_text()[-2000:])
    receiver.failing = False
    # Neither of the two is told before the other.
    until(lambda: {r["eventType"] for r in receiver.runs_of(job_id)} >= {"START", "COMPLETE"}, lambda: exporter.log.read_text()[-2000:])
    until(lambda: {s.name for s in receiver.of(job_id)} >= SPANS, lambda: exporter.log.read_text()[-2000:])

    spans = {s.span_id: s for s in receiver.of(job_id)}
    (start,) = [s for s in spans.values() if s.name == "job start"]
    assert {s.trace_id.hex() for s in spans.values()} == {PARENT_TRACE} and start.parent_span_id.hex() == PARENT_SPAN
    assert sorted(s.name for s in spans.values()) == sorted(SPANS)
    assert {s.parent_span_id for s in spans.values() if s is not start} == {start.span_id}
    assert all(0 < s.start_time_unix_nano <= s.end_time_unix_nano for s in spans.values())
    times = {s.name: (s.start_time_unix_nano, s.end_time_unix_nano) for s in spans.values()}
    assert times["job start"][0] <= times["wait for devices"][0] <= times["decision"][0] <= times["launch"][1] <= times["first step"][1]
    assert start.status.code == 1  # OK

    runs = receiver.runs_of(job_id)
    assert len({r["run"]["runId"] for r in runs}) == 1 and {r["job"]["name"] for r in runs} == {"default.traced"}
    assert next(r for r in runs if r["eventType"] == "START")["inputs"][0]["namespace"] == "s3://corpus"
    saved = {d["name"] for r in runs for d in r["outputs"]}
    checkpoints = f"SELECT uri FROM checkpoints WHERE job_id = '{job_id}'"
    assert saved
    until(lambda: {r["uri"].split("/", 3)[-1] for r in stack.rows(checkpoints)} == saved, lambda: (saved, stack.rows(checkpoints)))
    assert exporter.end(signal.SIGTERM) == 0


def test_every_process_tells_figures_of_its_own(stack: LiveStack, tmp_path: Path) -> None:
    job_id = submitted(stack, tmp_path, "metered", None)
    until(lambda: ended(stack, job_id), f"the end of {job_id}")
    addresses = {row.name: next(a for a in row.addresses if a.endswith("/metrics")) for row in ps(stack.data_dir) if row.name in METERED}
    assert set(addresses) == set(OWN) == set(METERED)
    for name, address in addresses.items():

        def told(name: str = name, address: str = address) -> bool:
            found = figures(address)
            return all(found.get(figure, 0) > 0 for figure in OWN[name])

        until(told, lambda name=name, address=address: (name, figures(address)))  # type: ignore[misc]
        assert job_id not in read(address)
    until(lambda: figures(addresses["scheduler"]).get("trainhouse_scheduler_input_lag_records") == 0, "the scheduler's lag")
    assert figures(addresses["intake"])["trainhouse_intake_own_failures_total"] == 0


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=480) as reply:
        return str(reply.read().decode())


def figures(address: str) -> dict[str, float]:
    """Each figure's sum over its labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(read(address)):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_objectives_are_answered_by_command_and_gateway(stack: LiveStack, tmp_path: Path) -> None:
    job_id = submitted(stack, tmp_path, "objective", None)
    until(lambda: ended(stack, job_id), f"the end of {job_id}")

    def counted() -> dict[str, Any]:
        rows = {row["name"]: row for row in map(json.loads, stack.ok("slo", "--json").splitlines())}
        return rows if all(rows[name]["total"] for name in ("submit-allocated", "start-small", "status-freshness", "control-plane")) else {}

    rows = until(counted, lambda: stack.ok("slo"), every_s=2.0)
    assert rows["start-small"]["actual"] == 1 and rows["start-small"]["budget_left"] == 1
    assert (rows["start-large"]["met"] is None) == (not rows["start-large"]["total"]), "without an event nothing is met or missed"
    exports = dict(re.findall(r"export (\w+)='?([^'\n]*)'?", stack.ok("env")))
    asked = urllib.request.Request(
        f"{exports['TRAINHOUSE_GATEWAY_URL']}/v1/slo", headers={"Authorization": f"Bearer {exports['TRAINHOUSE_GATEWAY_TOKEN']}"}
    )
    with urllib.request.urlopen(asked, timeout=480) as reply:
        items = {item["name"]: item for item in json.loads(reply.read())["items"]}
    assert set(items) == set(rows) and items["start-small"]["total"] >= rows["start-small"]["total"]
    told = read(f"{exports['TRAINHOUSE_GATEWAY_URL']}/metrics")
    assert 'trainhouse_gateway_requests_total{method="GET",route="/v1/slo",status="200"}' in told
