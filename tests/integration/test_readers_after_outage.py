"""A broker that stops and starts again: the exporter's and the alerts' clients go on, every record comes once, and what is told is kept."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import Event, envelope_of
from trainhouse.events.bus import outage
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.ids import EventId, JobId, NodeId, PoolName
from trainhouse.events.model.job import JobRejected
from trainhouse.events.model.node import NodeSuspected
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.model.trace_state import JobTraced
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.projections.alerts import broker_io as alerts_bus
from trainhouse.projections.alerts.broker_io import AlertsBus
from trainhouse.projections.alerts.errors import WatcherReplacedError
from trainhouse.projections.exporter import followed_topics as exporter_bus
from trainhouse.projections.exporter.followed_topics import ExporterBus

pytestmark = pytest.mark.stack
TRACED = JobTraced(job_id="j", submission_id="s", trace_id="0" * 32, submitted_ms=1, waits_since_ms=1)


def send(kafka: KafkaSettings, topic: str, event: Event, number: int) -> None:
    producer = EventProducer(kafka)
    producer.send(topic, envelope_of(event, id=f"e-{number}", source="test", now_ms=number), key="k")
    producer.flush()


def suspected(number: int) -> NodeSuspected:
    return NodeSuspected(node_id=NodeId("n"), boot_id="b", pool=PoolName("p"), silent_s=1, suspicion=1, at_ms=number)


def measured(number: int) -> ServiceMeasured:
    return ServiceMeasured(service="sql", source="me", since_ms=0, at_ms=number, total=1, good=1, failed=0, limit_s=0.1)


def test_exporter_and_alerts_go_on_after_the_broker_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "AFTER_OUTAGE_S", 1.0)
    for module in (exporter_bus, alerts_bus):
        monkeypatch.setattr(module, "ANSWER_S", 5.0)
    server = KafkaServer(tmp_path / "kafka")
    kafka = KafkaSettings(bootstrap=server.bootstrap)
    exported, verdicts = list[int](), list[int]()
    with server:
        create_topics(kafka)
        exporter, alerts = ExporterBus(kafka), AlertsBus(kafka)
        exporter.open(from_beginning=True)
        alerts.open(0)

        def read() -> tuple[list[int], list[int]]:
            exported.extend(message.offset() or 0 for message in exporter.poll(0.2) if message.topic() == topics.STATUS)
            verdicts.extend(row["at"] for row in alerts.verdicts(0.2))
            return exported, verdicts

        def write(number: int) -> None:
            refused = JobRejected(job_id=JobId("j"), submission_id=EventId("s"), reason="r", rejected_at_ms=number)
            send(kafka, topics.STATUS, refused, number)
            send(kafka, topics.VERDICTS, suspected(number), number)

        write(1)
        until(lambda: all(len(found) == 1 for found in read()), "the records before the outage")
        exporter.remember({"j": TRACED}, 1)
        alerts.publish_measured(measured(1))

        server.stop()
        with pytest.raises(BusUnavailableError):
            exporter.remember({"j": TRACED}, 2)
        with pytest.raises((BusUnavailableError, WatcherReplacedError)):
            alerts.publish_measured(measured(2))
        began_s = time.monotonic()
        while time.monotonic() < began_s + 3:
            read()  # nothing, and no error ends it
        server.start()
        server.wait_ready()

        write(2)
        until(lambda: all(len(found) == 2 for found in read()), "the records behind the outage, by the same readers", timeout_s=120)

        def remembered() -> bool:
            try:
                exporter.remember({"j": TRACED}, 3)
                exporter.commit({(topics.STATUS, 0): 1})
            except BusUnavailableError:
                return False
            return True

        until(remembered, "the exporter's own producer goes on", timeout_s=120)

        def told() -> bool:
            nonlocal alerts
            try:
                alerts.publish_measured(measured(3))
            except BusUnavailableError:
                return False
            except WatcherReplacedError:  # the process ends and its supervisor starts it again
                alerts.close()
                alerts = AlertsBus(kafka)
                alerts.open(0)
                return False
            return True

        until(told, "alerts tell again", timeout_s=120)
        assert len(exported) == len(verdicts) == 2, "each once"
        exporter.close()
        alerts.close()
        with closing(ExporterBus(kafka)) as later:
            jobs, _ = later.open(from_beginning=True)
            assert [job.job_id for job in jobs] == ["j"]
