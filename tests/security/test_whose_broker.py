"""Projects' topics on a real broker: what becomes of a project's jobs is told there exactly, while intake and the scheduler are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import LOOPBACK, free_port
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import CancelJob, Event, JobState, JobStatus, JobSubmitted, PoolCreated, decode, envelope_of
from trainhouse.events.bus.admin import create_project_topics, create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, partitions_of, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.project_topics import jobs_topic, status_topic

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
OWN, OTHER = "vision", "speech"
JOBS = 60
WAIT_S = 150.0


class Part:
    """A process of the control plane that may be killed and started anew."""

    def __init__(self, role: str, env: dict[str, str], log: Path) -> None:
        self._command, self._env, self._log = [sys.executable, "-m", "trainhouse.cli.main", "run", role], env, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdout=out, stderr=out, preexec_fn=die_with_parent(), cwd=self._log.parent
            )

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), port=free_port()) as server:
        settings = KafkaSettings(bootstrap=f"{LOOPBACK}:{server.port}")
        create_topics(settings)
        yield settings


@contextmanager
def parts(kafka: KafkaSettings, folder: Path) -> Iterator[dict[str, Part]]:
    with ExitStack() as stack:
        store = stack.enter_context(StoreServer(folder / "store"))
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")}
        env |= {f"TRAINHOUSE_KAFKA_{k.upper()}": str(v) for k, v in kafka.model_dump().items() if v is not None}
        env |= {"TRAINHOUSE_S3_ENDPOINT": store.endpoint, "TRAINHOUSE_S3_ACCESS_KEY": store.keys.access_key}
        env |= {"TRAINHOUSE_S3_SECRET_KEY": store.keys.secret_key}
        made = {}
        for role in ("intake", "scheduler"):
            made[role] = Part(role, env, folder / f"{role}.log")
            stack.callback(made[role].stop)
        yield made


def send(kafka: KafkaSettings, topic: str, events: dict[str, Event]) -> None:
    producer = EventProducer(kafka)
    for name, event in events.items():
        producer.send(topic, envelope_of(event, id=name, source="somebody", now_ms=1))
    producer.flush()


def heard(kafka: KafkaSettings, topic: str) -> list[tuple[str, bytes, Event]]:
    reader = consumer(kafka, **TO_END)
    try:
        found = read_to_end(reader, topic, partitions_of(reader, topic))
        return [((m.key() or b"").decode(), m.value() or b"", decode(m.value(), m.headers()).event) for m in found]
    finally:
        reader.close()


def told(kafka: KafkaSettings, topic: str) -> list[tuple[str, bytes, JobStatus]]:
    return [(key, value, event) for key, value, event in heard(kafka, topic) if isinstance(event, JobStatus)]


def submission(job_id: str, **spec: object) -> JobSubmitted:
    return JobSubmitted.model_validate({"job_id": job_id, "spec": {"runtime": {"command": ["true"]}} | spec})


def test_a_project_is_told_of_its_jobs_and_no_others_exactly_once_whoever_is_killed(broker: KafkaSettings, tmp_path: Path) -> None:
    for project in (OWN, OTHER):
        assert len(create_project_topics(broker, project)) == 2
    assert create_project_topics(broker, OWN) == []
    with parts(broker, tmp_path) as running:
        send(broker, topics.JOBS, {"pool": PoolCreated.model_validate({"pool": "default", "partition": 0})})
        until(lambda: heard(broker, topics.POOLS), timeout_s=WAIT_S)
        send(broker, jobs_topic(OTHER), {"o": submission(f"{OTHER}.a")})
        until(lambda: told(broker, status_topic(OTHER)), timeout_s=WAIT_S)
        for number in range(JOBS):
            send(broker, jobs_topic(OWN), {f"s{number}": submission(f"{OWN}.{number}", user="alice")})
            if number % 20 == 10:
                running["intake"].kill()
                running["scheduler"].kill()
                running["intake"].start()
                running["scheduler"].start()
        # What the project may not: a foreign job's end, another project's spec, a pool.
        send(
            broker,
            jobs_topic(OWN),
            {
                "c": CancelJob.model_validate({"job_id": f"{OTHER}.a"}),
                "r": submission(f"{OWN}.x", project=OTHER),
                "p": PoolCreated.model_validate({"pool": "mine", "partition": 1}),
                "e": CancelJob.model_validate({"job_id": f"{OWN}.0", "user": "bob"}),
            },
        )

        def ended() -> list[JobStatus]:
            found = [s for _, _, s in told(broker, status_topic(OWN))]
            all_of_them = {s.job_id for s in found} >= {f"{OWN}.{n}" for n in range(JOBS)}
            refused = any(s.submission_id == f"{OWN}/r" for s in found)
            return found if all_of_them and refused and any(s.state is JobState.CANCELLED for s in found) else []

        found = until(ended, timeout_s=WAIT_S, every_s=0.5)
    assert {s.project for s in found} == {OWN} and {s.user for s in found if s.user} == {f"{OWN}/alice"}
    (cancelled,) = (s for s in found if s.state is JobState.CANCELLED)
    assert cancelled.job_id == f"{OWN}.0" and f"(by {OWN}/bob)" in cancelled.reason
    every = told(broker, topics.STATUS)
    assert not any(s.job_id == f"{OTHER}.a" and s.state is not JobState.PENDING for _, _, s in every), "a foreign job was touched"
    for project in (OWN, OTHER):
        own, all_of_it = by_key(told(broker, status_topic(project))), by_key([t for t in every if t[2].project == project])
        assert own == all_of_it, "the project's topic differs from the status topic"
        for name, values in own.items():
            admitted = [v for v in values if v[1].status_seq]
            assert len(admitted) == len({s.status_seq for _, s in admitted}), f"{name} was told something twice"


def by_key(found: list[tuple[str, bytes, JobStatus]]) -> dict[str, list[tuple[bytes, JobStatus]]]:
    grouped = defaultdict(list)
    for key, value, status in found:
        grouped[key].append((value, status))
    return grouped
