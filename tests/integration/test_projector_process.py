"""The projector as a process on a real Kafka: killed at seeded instants under load, fed by transactions, asked over HTTP meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.tables.projecting import CURVES, lines, metrics
from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.bus.kafka import EventProducer, producer_config
from trainhouse.events.model.base import Event
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.model.telemetry import LogLines, StepMetrics
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.settings import ClickHouseSettings
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_server

pytestmark = pytest.mark.stack

PROGRAM = """
import sys
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.projector import main
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings
sys.exit(main(KafkaSettings(), ProjectorSettings(), ClickHouseSettings()))
"""
POINTS = 20
MANY = 3000


class Process:
    """One projector that can be killed and started again on the same folder."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "projector.log"
        self._environment = os.environ | {
            "TRAINHOUSE_KAFKA_BOOTSTRAP": bootstrap,
            "TRAINHOUSE_CLICKHOUSE_PASSWORD": "of-the-tests",  # pragma: allowlist secret
            "TRAINHOUSE_PROJECTOR_DATA_DIR": str(folder / "clickhouse"),
            "TRAINHOUSE_PROJECTOR_HTTP_PORT": str(self.port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> None:
        """``more``: settings of the projector, in addition to those of its first start."""
        self._environment |= more
        with self._log.open("ab") as log:
            command = [sys.executable, "-c", PROGRAM]
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGKILL)
            )

    def wait_ready(self) -> None:
        until(self.answers, lambda: self._log.read_text()[-4000:])

    def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=2).read() == b"Ok.\n")
        except OSError:
            return False

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def clickhouse(self) -> ConnectClickHouse:
        return connect_server(ClickHouseSettings(url=f"http://127.0.0.1:{self.port}", password="of-the-tests"))  # pragma: allowlist secret


@pytest.fixture
def projector(settings: KafkaSettings, tmp_path: Path) -> Iterator[Process]:
    process = Process(settings.bootstrap, tmp_path)
    yield process
    if process._process is not None and process._process.poll() is None:
        process.kill()


def points(job: str, n: int) -> StepMetrics:
    return metrics(n * POINTS, POINTS, curves={"loss": CURVES["loss"]}, job_id=job)


def line(job: str, n: int) -> LogLines:
    return lines(n, 1, job_id=job)


@pytest.mark.chaos
def test_killed_under_load_it_loses_and_doubles_nothing(settings: KafkaSettings, projector: Process) -> None:
    seed = 20261121
    chance = random.Random(seed)
    job = f"chaos-{seed}-{time.time_ns()}"
    stop = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        producer = EventProducer(settings)
        while not stop.is_set():
            for event in (points(job, sent), line(job, sent), JobStatus(job_id=job, status_seq=sent, state=JobState.RUNNING, step=sent)):
                topic = {StepMetrics: topics.METRICS, LogLines: topics.LOGS, JobStatus: topics.STATUS}[type(event)]
                producer.send(topic, envelope_of(event, id=f"{job}:{type(event).__name__}:{sent}", source="test", now_ms=1))
            # A spool that is cut again: the repeat must vanish.
            if chance.random() < 0.05:
                producer.send(topics.METRICS, envelope_of(points(job, sent), id=f"{job}:again:{sent}", source="test", now_ms=1))
            sent += 1
            # What is sent has to be read too: on a slow machine, whose lives last longer, it must not become more than that machine can do.
            stop.wait(0.002 if sent < MANY else 0.2)
        producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    projector.start(TRAINHOUSE_PROJECTOR_BATCH_MAX_RECORDS="40")  # small batches: more of them are cut by a kill
    try:
        for life in range(6):
            if life % 2 == 0:  # the other lives end while they start: in a migration, a replay, an open of the engine
                projector.wait_ready()
            time.sleep(chance.uniform(0.0, 1.5))
            assert projector.kill() == -signal.SIGKILL
            projector.start()
    finally:
        stop.set()
        thread.join()
    projector.wait_ready()
    clickhouse = projector.clickhouse()
    count = "SELECT (SELECT count() FROM step_metrics WHERE job_id = {j:String}), (SELECT count() FROM logs WHERE job_id = {j:String})"
    step = "SELECT step FROM jobs WHERE job_id = {j:String}"
    until(
        lambda: clickhouse.rows(count, {"j": job})[0] >= (sent * POINTS, sent) and clickhouse.rows(step, {"j": job}) == [(sent - 1,)],
        lambda: (sent, clickhouse.rows(count, {"j": job}), clickhouse.rows(step, {"j": job})),
        timeout_s=400,
    )
    assert clickhouse.rows(count, {"j": job}) == [(sent * POINTS, sent)], f"seed {seed}"
    distinct = "SELECT uniqExact(step), min(step), max(step), sum(value) FROM step_metrics WHERE job_id = {j:String}"
    assert clickhouse.rows(distinct, {"j": job})[0][:3] == (sent * POINTS, 0, sent * POINTS - 1)
    assert clickhouse.rows("SELECT uniqExact(offset) FROM logs WHERE job_id = {j:String}", {"j": job}) == [(sent,)]
    assert clickhouse.rows("SELECT count() FROM statuses_rows FINAL WHERE job_id = {j:String}", {"j": job}) == [(sent,)]
    clickhouse.close()


def test_only_committed_records_of_transactions_count(settings: KafkaSettings, projector: Process) -> None:
    job = f"transactional-{time.time_ns()}"
    producer = Producer(producer_config(settings, **{"transactional.id": job, "linger.ms": 0}))
    producer.init_transactions(60)

    def status(seq: int) -> bytes:
        return encode(
            envelope_of(JobStatus(job_id=job, status_seq=seq, state=JobState.RUNNING, step=seq), id=f"{job}:{seq}", source="t", now_ms=1)
        )

    for seq in range(12):
        producer.begin_transaction()
        producer.produce(topics.STATUS, status(seq), key=job.encode(), partition=0, headers=list(HEADERS))
        # An abort drops what is not sent yet: then the brokers know of no transaction, and there is no aborted record to pass over.
        producer.flush(30)
        producer.abort_transaction(30) if seq % 3 == 2 else producer.commit_transaction(30)
    projector.start()
    projector.wait_ready()
    clickhouse = projector.clickhouse()
    seen = "SELECT groupArray(status_seq) FROM (SELECT status_seq FROM statuses_rows FINAL WHERE job_id = {j:String} ORDER BY status_seq)"
    expected = [n for n in range(12) if n % 3 != 2]
    until(lambda: clickhouse.rows(seen, {"j": job})[0][0] == expected, lambda: clickhouse.rows(seen, {"j": job}))
    projector.kill()
    projector.start()
    projector.wait_ready()
    assert clickhouse.rows(seen, {"j": job})[0][0] == expected
    clickhouse.close()


def test_a_signal_ends_it_well_and_questions_are_answered(settings: KafkaSettings, projector: Process) -> None:
    job = f"asked-{time.time_ns()}"
    producer = EventProducer(settings)
    events: list[tuple[str, Event]] = [
        (topics.STATUS, JobStatus(job_id=job, status_seq=0, state=JobState.PENDING, user="ada", team="t1", submitted_at_ms=5)),
        (topics.STATUS, JobStatus(job_id=job, status_seq=1, state=JobState.RUNNING, user="ada", team="t1", step=1, submitted_at_ms=5)),
        (topics.STATUS, JobStatus(job_id=job, status_seq=2, state=JobState.RUNNING, user="ada", team="t1", step=2, submitted_at_ms=5)),
        (topics.METRICS, points(job, 0)),
        (topics.LOGS, line(job, 0)),
        (topics.LOGS, line(job, 1)),
    ]
    for n, (topic, event) in enumerate(events):
        producer.send(topic, envelope_of(event, id=f"{job}:{n}", source="test", now_ms=1000 + n))
    producer.flush()
    projector.start()
    projector.wait_ready()
    clickhouse = projector.clickhouse()

    def asked(query: str, **more: str) -> list[tuple[Any, ...]]:
        return clickhouse.rows(query, {"j": job} | more)

    output = "SELECT line FROM logs WHERE job_id = {j:String} AND rank = 0 ORDER BY source_offset, offset"
    curve = "SELECT count() FROM step_metrics WHERE job_id = {j:String} AND metric = 'loss'"
    until(lambda: len(asked(output)) == 2 and asked(curve) == [(POINTS,)])
    until(lambda: asked("SELECT step FROM jobs WHERE job_id = {j:String}") == [(2,)])
    whose = "user = {u:String} AND team = 't1' AND state = 'RUNNING'"
    of_user = f"SELECT job_id FROM jobs WHERE {whose} AND submitted_at >= fromUnixTimestamp64Milli(toInt64(1))"
    assert [j for (j,) in asked(of_user, u="ada") if j == job] == [job]
    assert asked(of_user, u="ada'; DROP TABLE jobs_rows --") == []
    assert asked(output) == [("line 0",), ("line 1",)]
    told = "SELECT summary FROM events WHERE job_id = {j:String} ORDER BY time, source_topic, source_partition, source_offset"
    assert asked(told) == [("PENDING",), ("RUNNING",)]
    for view in ("attempts", "checkpoints", "ranks", "allocations", "rejections"):
        assert asked(f"SELECT * FROM {view} WHERE job_id = {{j:String}}") == []
    assert asked("SELECT * FROM nodes WHERE pool = 'none'") == []
    clickhouse.close()
    assert projector.kill(signal.SIGTERM) == 0
