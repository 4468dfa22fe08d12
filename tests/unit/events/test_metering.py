"""Figures for Prometheus: what is counted where, that a parser takes them, and that no label grows with the work."""

from __future__ import annotations

import itertools
import urllib.request

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from trainhouse.deploy.local.free_ports import FIRST_FREE_PORT, free_port
from trainhouse.deploy.local.layout import COUNT, METERED, METRICS, StackPorts
from trainhouse.events.runtime.metrics_server import MetricsSettings, exposition, new_registry, serve
from trainhouse.events.wire.journal import ClockTicked, InputRefused, JournaledInput, JournalRecord
from trainhouse.projections.process_metrics import AlertMeters, LaneLag, LaneMeters, QueryMeters
from trainhouse.projections.record import Record
from trainhouse.scheduler.stream.metrics import DetectorMeters, JournalMeters, ScreeningMeters
from trainhouse.workers.agent.agent_metrics import AgentFigures, Figures


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = exposition(registry)[1].decode()
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_a_journals_owner_counts_what_its_records_hold() -> None:
    registry = CollectorRegistry()
    meters = JournalMeters("scheduler", registry)
    items = (JournaledInput(7, None, b"x"), JournaledInput(None, None, b"tick"))
    decisions = (InputRefused(offset=7, reason="no"), ClockTicked())
    record = JournalRecord(
        seq=1,
        owner="o",
        now_ms=1,
        cursor=7,
        inputs=items,
        decisions=decisions,
        published_up_to=0,
        decide_version=1,
        fold_version=1,
        previous_hash="",
    )
    meters.proposed(record, 0.003)
    meters.lag.labels(2).set(5)
    found = samples(registry)
    assert found["trainhouse_scheduler_inputs_total", ()] == 1
    assert found["trainhouse_scheduler_decisions_total", ()] == 2
    assert found["trainhouse_scheduler_refused_inputs_total", ()] == 1
    assert found["trainhouse_scheduler_decision_seconds_sum", ()] == pytest.approx(0.003)
    assert found["trainhouse_scheduler_decision_seconds_bucket", (("le", "0.005"),)] == 1
    assert found["trainhouse_scheduler_input_lag_records", (("partition", "2"),)] == 5


def test_a_lane_tells_rows_dead_letters_and_how_old_its_oldest_record_was() -> None:
    registry = CollectorRegistry()
    meters, behind = LaneMeters(registry), LaneLag(registry)
    meters.wrote("facts", {"jobs_rows": pa.table({"a": [1, 2, 3]})}, 1)
    meters.ingested("facts", [Record("t", 0, 1, 1, None, b""), Record("t", 0, 2, 0, None, b"")], 0.02)
    behind.follow("facts", lambda: 12)
    found = samples(registry)
    assert found["trainhouse_projector_rows_total", (("table", "jobs_rows"),)] == 3
    assert found["trainhouse_projector_dead_letters_total", (("lane", "facts"),)] == 1
    assert found["trainhouse_projector_records_total", (("lane", "facts"),)] == 2
    assert found["trainhouse_projector_ingest_lag_seconds_sum", (("lane", "facts"),)] > 1e9  # a record of 1970
    assert found["trainhouse_projector_lag_records", (("lane", "facts"),)] == 12


class Changing:
    """An agent whose state changes under the first looks."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def figures(self) -> Figures:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("dictionary changed size during iteration")
        return Figures({"running": 2}, 8, 4096, 3, 900, 77, 60)


def test_an_agent_is_asked_again_when_it_changed_meanwhile_and_left_out_when_that_goes_on() -> None:
    registry = CollectorRegistry()
    registry.register(AgentFigures(Changing(3)))  # registering looks once to learn the names, reading looks again
    found = samples(registry)
    assert found["trainhouse_agent_attempts", (("phase", "running"),)] == 2
    assert found["trainhouse_agent_attempts", (("phase", "waiting"),)] == 0
    assert found["trainhouse_agent_spool_lag_bytes", ()] == 4096
    busy = CollectorRegistry()
    busy.register(AgentFigures(Changing(10**6)))
    assert samples(busy) == {}


def test_figures_are_served_and_a_busy_port_stops_nothing() -> None:
    settings = MetricsSettings(port=free_port())
    serving = serve(new_registry(), settings)
    assert serving is not None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/metrics", timeout=60) as reply:
            families = {f.name for f in text_string_to_metric_families(reply.read().decode())}
        assert {"process_resident_memory_bytes", "python_info"} <= families
        assert serve(new_registry(), settings) is None
    finally:
        serving.close()
    assert serve(new_registry(), MetricsSettings(port=0)) is None


def test_labels_are_few_and_known() -> None:
    registry = CollectorRegistry()
    for make in (ScreeningMeters, DetectorMeters, LaneMeters, LaneLag, QueryMeters, AlertMeters):
        make(registry)
    JournalMeters("scheduler", registry)
    JournalMeters("intake", registry)
    names = list(registry._collector_to_names)
    labels = {label for meter in names for label in getattr(meter, "_labelnames", ())}
    assert labels <= {"partition", "lane", "table", "type", "outcome", "what", "severity", "fault", "clock"}


def test_every_part_has_a_port_of_its_own_also_in_a_folder_of_before() -> None:
    ports = StackPorts.from_base(30_000)
    assert [ports.metrics(name) for name in METERED] == list(range(30_000 + METRICS, 30_000 + COUNT))
    old = StackPorts(tuple(range(30_000, 30_011)))
    assert old.metrics("agent") == 0 and ports.metrics("kafka") == 0
    whole = old.complete()
    assert whole.numbers[:11] == old.numbers and len(set(whole.numbers)) == COUNT


def test_a_folder_of_before_gets_no_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    picks = itertools.count(30_000 - FIRST_FREE_PORT)
    monkeypatch.setattr("trainhouse.deploy.local.free_ports.secrets.randbelow", lambda _below: next(picks))
    numbers = StackPorts(tuple(range(30_000, 30_011))).complete().numbers
    assert len(set(numbers)) == len(numbers) == COUNT
