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

import pytest
from confluent_kafka import Producer

from tests.waiting import until
from trainhouse.deploy.local.ports import free_port
from trainhouse.deploy.local.server import die_with_parent
from trainhouse.events import topics
from trainhouse.events.admin import create_topics
from trainhouse.events.base import Event
from trainhouse.events.codec import HEADERS, encode
from trainhouse.events.envelope import envelope_of
from trainhouse.events.job import JobState, JobStatus
from trainhouse.events.kafka import EventProducer, producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.telemetry import LogLines, StepMetrics
from trainhouse.projections.queries import JobFilter, Queries
from trainhouse.projections.settings import ClickHouseSettings

pytestmark = pytest.mark.stack

PROGRAM = """
import sys
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.projector import main
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings
sys.exit(main(KafkaSettings(), ProjectorSettings(), ClickHouseSettings()))
"""
POINTS = 20


class Process:
    """One projector that can be killed and started again on the same folder."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "projector.log"
        self._environment = os.environ | {
            "TRAINHOUSE_KAFKA_BOOTSTRAP": bootstrap,
            "TRAINHOUSE_PROJECTOR_DATA_DIR": str(folder / "clickhouse"),
            "TRAINHOUSE_PROJECTOR_HTTP_PORT": str(self.port),
            "TRAINHOUSE_PROJECTOR_BATCH_MAX_RECORDS": "40",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-c", PROGRAM]
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, preexec_fn=die_with_parent(signal.SIGKILL)
            )

    def wait_ready(self) -> None:
        until(self.answers, lambda: self._log.read_text()[-4000:], 90)

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

    def queries(self) -> Queries:
        return Queries(ClickHouseSettings(url=f"http://127.0.0.1:{self.port}"))


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    found = KafkaSettings(bootstrap=kafka)
    create_topics(found)
    return found


@pytest.fixture
def projector(settings: KafkaSettings, tmp_path: Path) -> Iterator[Process]:
    process = Process(settings.bootstrap, tmp_path)
    process.start()
    yield process
    if process._process is not None and process._process.poll() is None:
        process.kill()


def points(job: str, n: int) -> StepMetrics:
    numbers = range(n * POINTS, (n + 1) * POINTS)
    return StepMetrics(
        job_id=job,
        attempt=0,
        epoch=0,
        rank=0,
        node_id="node",
        start=numbers.start * 10,
        end=numbers.stop * 10,
        steps=tuple(numbers),
        times_ms=tuple(1_800_000_000_000 + i for i in numbers),
        offsets=tuple(i * 10 for i in numbers),
        metrics={"loss": tuple(1.0 / (i + 1) for i in numbers)},
    )


def lines(job: str, n: int) -> LogLines:
    return LogLines(
        job_id=job,
        attempt=0,
        epoch=0,
        rank=0,
        node_id="node",
        start=n * 10,
        end=n * 10 + 10,
        stream="stdout",
        lines=(f"line {n}",),
        offsets=(n * 10,),
        read_at_ms=1_800_000_000_000,
    )


@pytest.mark.chaos
@pytest.mark.timeout(600)
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
            for event in (points(job, sent), lines(job, sent), JobStatus(job_id=job, status_seq=sent, state=JobState.RUNNING, step=sent)):
                topic = {StepMetrics: topics.METRICS, LogLines: topics.LOGS, JobStatus: topics.STATUS}[type(event)]
                producer.send(topic, envelope_of(event, id=f"{job}:{type(event).__name__}:{sent}", source="test", now_ms=1))
            # A spool that is cut again: the repeat must vanish.
            if chance.random() < 0.05:
                producer.send(topics.METRICS, envelope_of(points(job, sent), id=f"{job}:again:{sent}", source="test", now_ms=1))
            sent += 1
            stop.wait(0.002)
        producer.flush(60)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for life in range(10):
            if life % 2 == 0:  # the other lives end while they start: in a migration, a replay, an open of the engine
                projector.wait_ready()
            time.sleep(chance.uniform(0.0, 1.5))
            assert projector.kill() == -signal.SIGKILL
            projector.start()
    finally:
        stop.set()
        thread.join()
    projector.wait_ready()
    queries = projector.queries()
    count = "SELECT (SELECT count() FROM step_metrics WHERE job_id = {j:String}), (SELECT count() FROM logs WHERE job_id = {j:String})"
    until(
        lambda: queries.sql(count, {"j": job})[1][0] >= (sent * POINTS, sent) and queries.job(job)["step"] == sent - 1,
        lambda: (sent, queries.sql(count, {"j": job})[1], queries.job(job)),
    )
    assert queries.sql(count, {"j": job})[1] == [(sent * POINTS, sent)], f"seed {seed}"
    distinct = "SELECT uniqExact(step), min(step), max(step), sum(value) FROM step_metrics WHERE job_id = {j:String}"
    assert queries.sql(distinct, {"j": job})[1][0][:3] == (sent * POINTS, 0, sent * POINTS - 1)
    assert queries.sql("SELECT uniqExact(offset) FROM logs WHERE job_id = {j:String}", {"j": job})[1] == [(sent,)]
    assert queries.sql("SELECT count() FROM statuses_rows FINAL WHERE job_id = {j:String}", {"j": job})[1] == [(sent,)]
    queries.close()


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
    projector.wait_ready()
    queries = projector.queries()
    seen = "SELECT groupArray(status_seq) FROM (SELECT status_seq FROM statuses_rows FINAL WHERE job_id = {j:String} ORDER BY status_seq)"
    expected = [n for n in range(12) if n % 3 != 2]
    until(lambda: queries.sql(seen, {"j": job})[1][0][0] == expected, timeout_s=60)
    projector.kill()
    projector.start()
    projector.wait_ready()
    assert queries.sql(seen, {"j": job})[1][0][0] == expected
    queries.close()


def test_a_signal_ends_it_well_and_questions_are_answered(settings: KafkaSettings, projector: Process) -> None:
    job = f"asked-{time.time_ns()}"
    producer = EventProducer(settings)
    events: list[tuple[str, Event]] = [
        (topics.STATUS, JobStatus(job_id=job, status_seq=0, state=JobState.PENDING, user="ada", team="t1", submitted_at_ms=5)),
        (topics.STATUS, JobStatus(job_id=job, status_seq=1, state=JobState.RUNNING, user="ada", team="t1", step=1, submitted_at_ms=5)),
        (topics.STATUS, JobStatus(job_id=job, status_seq=2, state=JobState.RUNNING, user="ada", team="t1", step=2, submitted_at_ms=5)),
        (topics.METRICS, points(job, 0)),
        (topics.LOGS, lines(job, 0)),
        (topics.LOGS, lines(job, 1)),
    ]
    for n, (topic, event) in enumerate(events):
        producer.send(topic, envelope_of(event, id=f"{job}:{n}", source="test", now_ms=1000 + n))
    producer.flush()
    projector.wait_ready()
    queries = projector.queries()
    until(lambda: len(queries.logs(job)) == 2 and len(queries.metrics(job, "loss")) == POINTS, timeout_s=60)
    until(lambda: (queries.job(job) or {}).get("step") == 2, timeout_s=60)
    assert [j["job_id"] for j in queries.jobs(JobFilter(user="ada", team="t1", states=("running",), since_ms=1)) if j["job_id"] == job] == [
        job
    ]
    assert queries.jobs(JobFilter(user="ada'; DROP TABLE jobs_rows --")) == []
    assert [line["line"] for line in queries.logs(job, rank=0)] == ["line 0", "line 1"]
    assert [line["line"] for line in queries.logs(job, after=queries.logs(job)[0])] == ["line 1"]
    assert [e["summary"] for e in queries.events(job)] == ["PENDING", "RUNNING"]
    for empty in (queries.attempts, queries.checkpoints, queries.ranks, queries.allocations):
        assert empty(job) == []
    assert all(r["job_id"] != job for r in queries.rejections())
    assert queries.nodes(pool="none") == []
    queries.close()
    assert projector.kill(signal.SIGTERM) == 0
