"""The client against a real broker: it follows statuses written by transactions, and tells a job's story once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.waiting import until
from trainhouse.client import NoReplyError, NotReachableError, SqlEndpoint, TrainhouseClient, UnknownJobError, spec_of
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.kafka.backend import ByKafka
from trainhouse.client.kafka.job_events import spec_of_job, story
from trainhouse.client.kafka.operations import dump_stacks, execute
from trainhouse.events import (
    CodeArchive,
    Event,
    JobState,
    JobStatus,
    JobSubmitted,
    NodePlacement,
    OperationReplied,
    decode,
    encode,
    envelope_of,
)
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import consumer, partitions_of, producer_config, watermarks
from trainhouse.events.model.dead_letter import DeadLetter
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, JOBS, OPERATION_REPLIES, OPERATIONS, STATUS

SPEC = spec_of({"name": "gpt", "runtime": {"command": ["python", "train.py"]}})
NO_SQL = SqlEndpoint("http://127.0.0.1:1", timeout_s=0.2)


def no_code(_: PackedCode) -> CodeArchive:
    raise AssertionError("nothing to pack here")


@pytest.fixture(scope="module")
def settings(kafka: str) -> KafkaSettings:
    found = KafkaSettings(bootstrap=kafka)
    create_topics(found)
    return found


@pytest.fixture
def client(settings: KafkaSettings) -> TrainhouseClient:
    return TrainhouseClient(ByKafka(settings, NO_SQL, no_code))


@dataclass
class Publisher:
    """Statuses as the scheduler writes them: each batch a transaction."""

    producer: Producer

    def publish(self, *statuses: JobStatus, key: str | None = None, commit: bool = True) -> None:
        self.producer.begin_transaction()
        for status in statuses:
            envelope = envelope_of(status, id=secrets.token_hex(8), source="test", now_ms=wall_ms())
            self.producer.produce(STATUS, encode(envelope), (key or envelope.subject).encode(), headers=list(HEADERS))
        if commit:
            self.producer.commit_transaction()
        else:
            self.producer.flush()
            self.producer.abort_transaction()


@pytest.fixture
def publisher(settings: KafkaSettings) -> Publisher:
    producer = Producer(producer_config(settings, **{"transactional.id": secrets.token_hex(4)}))
    producer.init_transactions(30)
    return Publisher(producer)


def a_status(job: str, seq: int, state: JobState, **more: object) -> JobStatus:
    return JobStatus.model_validate({"job_id": job, "status_seq": seq, "state": state, "updated_at_ms": wall_ms(), **more})


def send(settings: KafkaSettings, topic: str, event: Event, id: str, key: str = "k") -> None:
    producer = Producer(producer_config(settings))
    producer.produce(topic, encode(envelope_of(event, id=id, source="test", now_ms=wall_ms())), key.encode())
    assert producer.flush(30) == 0


def test_a_submission_is_read_back_as_it_was_sent(client: TrainhouseClient, settings: KafkaSettings) -> None:
    job = client.submit(SPEC)
    assert spec_of_job(settings, job.job_id) == SPEC
    assert spec_of_job(settings, "nothing") is None


def test_waiting_ends_with_the_final_status_and_skips_what_was_aborted(client: TrainhouseClient, publisher: Publisher) -> None:
    job = client.submit(SPEC)
    publisher.publish(a_status(job.job_id, 0, JobState.PENDING), a_status("another", 0, JobState.FAILED))
    publisher.publish(a_status(job.job_id, 9, JobState.FAILED), commit=False)
    publisher.publish(a_status(job.job_id, 1, JobState.RUNNING, step=3))
    publisher.publish(a_status(job.job_id, 2, JobState.SUCCEEDED))
    seen = [s.state for s in client.watch(job, timeout_s=150) if s is not None]
    assert seen == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert client.wait(str(job.job_id), timeout_s=150).state is JobState.SUCCEEDED


def test_an_older_status_after_a_newer_one_is_not_shown(client: TrainhouseClient, publisher: Publisher) -> None:
    job = client.submit(SPEC)
    publisher.publish(a_status(job.job_id, 5, JobState.RUNNING), a_status(job.job_id, 4, JobState.PENDING))
    publisher.publish(a_status(job.job_id, 6, JobState.CANCELLED))
    assert [s.state for s in client.watch(job, timeout_s=150) if s is not None] == ["RUNNING", "CANCELLED"]


def test_a_rejected_resubmission_is_told_to_its_sender_alone(client: TrainhouseClient, publisher: Publisher) -> None:
    first = client.submit(SPEC)
    second = client.submit(SPEC, job_id=first.job_id)
    publisher.publish(a_status(first.job_id, 0, JobState.RUNNING))
    rejected = a_status(first.job_id, 0, JobState.REJECTED, submission_id=second.event_id, reason="the id belongs to another spec")
    publisher.publish(rejected, key=second.event_id)
    assert client.wait(second, timeout_s=150).reason == "the id belongs to another spec"
    assert client.status(first.job_id).state is JobState.RUNNING

    def waited_for() -> str:
        with pytest.raises(TimeoutError) as late:
            client.wait(first, timeout_s=3)
        return str(late.value)

    until(lambda: "RUNNING" in waited_for(), "what it is now, once its topic was read in that time")


def test_many_first_statuses_come_out_of_one_reading(client: TrainhouseClient, publisher: Publisher) -> None:
    jobs = [client.submit(SPEC) for _ in range(30)]
    silent, refused = jobs[-1], jobs[0]
    publisher.publish(a_status("", 0, JobState.REJECTED, job_id=None, reason="no pool"), key=refused.submitted.event_id)
    publisher.publish(*(a_status(str(job.job_id), 1, JobState.PENDING) for job in jobs[1:-1]))
    found = client.first_statuses(jobs[:-1], timeout_s=150)
    assert [status.state for status in found.values() if status] == ["REJECTED", *["PENDING"] * 28]
    assert client.first_statuses([silent], timeout_s=1) == {str(silent.job_id): None}


def test_an_unknown_job_is_an_error(client: TrainhouseClient) -> None:
    with pytest.raises(UnknownJobError):
        client.status("nothing-like-that")


def test_a_story_tells_each_event_once(client: TrainhouseClient, settings: KafkaSettings, publisher: Publisher) -> None:
    job = client.submit(SPEC)
    again = JobSubmitted(job_id=job.job_id, spec=SPEC)
    send(settings, JOBS, again, job.event_id)
    send(settings, CONTROL, again, job.event_id)
    publisher.publish(a_status(job.job_id, 0, JobState.PENDING))
    letter = DeadLetter(JOBS, 0, 7, "no JSON", job_id=job.job_id)
    producer = Producer(producer_config(settings))
    producer.produce(DEAD_LETTERS, b"\xff junk", letter.key, headers=letter.headers())
    producer.produce(JOBS, b"\xff junk about " + job.job_id.encode())
    assert producer.flush(30) == 0
    told = story(settings, job.job_id)
    assert [getattr(t.what, "type", "dead letter") for t in told] == [
        "trainhouse.job.submitted.v1",
        "trainhouse.job.status.v1",
        "dead letter",
    ]


def test_no_broker_is_said_in_time() -> None:
    away = TrainhouseClient(ByKafka(KafkaSettings(bootstrap="127.0.0.1:1"), NO_SQL, no_code))
    with pytest.raises(NotReachableError, match="trainhouse up"):
        away.submit(SPEC)


@pytest.fixture
def requests(settings: KafkaSettings) -> Iterator[Consumer]:
    """Reads requests from now on, as an agent does."""
    reader = consumer(settings)
    reader.assign([TopicPartition(OPERATIONS, n, watermarks(reader, OPERATIONS, n)[1]) for n in partitions_of(reader, OPERATIONS)])
    yield reader
    reader.close()


def running(job: str) -> JobStatus:
    placements = (
        NodePlacement.model_validate({"node_id": "a", "boot_id": "b", "address": "x", "first_rank": 0, "devices": ["0", "1"]}),
        NodePlacement.model_validate({"node_id": "b", "boot_id": "b", "address": "x", "first_rank": 2, "devices": ["0"]}),
    )
    return a_status(job, 1, JobState.RUNNING, allocation=placements, world_size=3)


def test_operations_gather_every_ranks_answer(settings: KafkaSettings, requests: Consumer) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: list(dump_stacks(settings, running("j"), timeout_s=150)))
        for _ in range(2):
            message = requests.poll(60)
            assert message is not None
            request = decode(message.value(), message.headers()).event
            for rank in (0, 1) if request.node_id == "a" else (2,):  # type: ignore[attr-defined]
                reply = {"request_id": request.request_id, "node_id": request.node_id, "job_id": "j", "attempt": 0, "rank": rank}  # type: ignore[attr-defined]
                for part in (0, 1):
                    answer = OperationReplied.model_validate({**reply, "part": part, "text": f"{rank}.{part}", "done": part == 1})
                    send(settings, OPERATION_REPLIES, answer, f"{rank}:{part}")
        replies = asked.result(180)
    assert sorted(r.text for r in replies) == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]


def test_silent_agents_are_named(settings: KafkaSettings) -> None:
    began = time.monotonic()
    with pytest.raises(NoReplyError, match="rank 2 within 6 s"):
        list(execute(settings, running("j"), 2, ("true",), timeout_s=1))
    assert time.monotonic() - began < 30
