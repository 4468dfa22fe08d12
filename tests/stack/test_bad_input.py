"""What any Kafka client may throw at the public topic: nothing stops, and each producer gets a reason that says what to change."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import DeadLetter, JobState, JobStatus, decode
from trainhouse.events.bus.kafka import consumer, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

pytestmark = pytest.mark.stack
RUNTIME = {"command": ["python", "-c", "print('hello')"]}


@pytest.fixture(scope="module")
def kafka(stack: LiveStack) -> KafkaSettings:
    return KafkaSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["kafka"])


@pytest.fixture(scope="module")
def reader(kafka: KafkaSettings) -> Iterator[Consumer]:
    found = consumer(kafka, group="bad-input")
    yield found
    found.close()


def produce(kafka: KafkaSettings, *values: bytes, key: bytes | None = None) -> None:
    """As an outsider would: a plain producer with another partitioner, and no settings of ours."""
    producer = Producer(kafka.client_config(partitioner="consistent_random"))
    for value in values:
        producer.produce(topics.JOBS, value, key=key)
    assert producer.flush(30) == 0


def submission(job_id: str, event_id: str | None = None, **spec: Any) -> bytes:
    data = {"job_id": job_id, "spec": {"runtime": RUNTIME} | spec}
    envelope = {
        "specversion": "1.0",
        "id": event_id or f"e-{job_id}",
        "source": "test",
        "type": "trainhouse.job.submitted.v1",
        "data": data,
    }
    return json.dumps(envelope).encode()


def status_of(reader: Consumer, kafka: KafkaSettings, key: str) -> JobStatus | None:
    """The newest status under a key of the public topic."""
    found = None
    for message in read_to_end(reader, topics.STATUS, range(kafka.partitions)):
        if message.key() == key.encode():
            event = decode(message.value(), message.headers()).event
            found = event if isinstance(event, JobStatus) else found
    return found


def letter_with(reader: Consumer, kafka: KafkaSettings, marker: bytes) -> DeadLetter | None:
    """The dead letter whose raw bytes hold the marker."""
    for message in read_to_end(reader, topics.DEAD_LETTERS, range(kafka.partitions)):
        if marker in (message.value() or b""):
            return DeadLetter.of_headers(message.headers())  # type: ignore[arg-type]
    return None


def test_what_cannot_be_read_becomes_a_dead_letter_with_its_reason(kafka: KafkaSettings, reader: Consumer) -> None:
    marker = secrets.token_hex(8)
    produce(kafka, b'{"broken": ' + marker.encode())
    letter = until(lambda: letter_with(reader, kafka, marker.encode()))
    assert "no JSON" in letter.reason
    assert letter.topic == topics.JOBS


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [(b"submitted.v1", b"submitted.v9", "this version is not known"), (b"job.submitted", b"job.exploded", "trainhouse schemas")],
)
def test_an_unknown_type_or_version_is_told_what_is_known(
    kafka: KafkaSettings, reader: Consumer, old: bytes, new: bytes, reason: str
) -> None:
    job_id = f"bad-{secrets.token_hex(4)}"
    produce(kafka, submission(job_id).replace(old, new))
    assert reason in until(lambda: letter_with(reader, kafka, job_id.encode())).reason
    status = until(lambda: status_of(reader, kafka, f"e-{job_id}"))
    assert (status.state, status.job_id) == (JobState.REJECTED, job_id)
    assert reason in status.reason


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"priorty": 3}, "did you mean 'priority'"),
        ({"pool": "nowhere"}, "default"),
        ({"gang": 0}, "greater than or equal to 1"),
        ({"gang": 4000}, "4000"),
    ],
    ids=["typo", "unknown pool", "no ranks", "a gang that no pool could hold"],
)
def test_a_spec_that_cannot_run_is_rejected_with_what_to_change(
    kafka: KafkaSettings, reader: Consumer, spec: dict[str, Any], reason: str
) -> None:
    job_id = f"bad-{secrets.token_hex(4)}"
    produce(kafka, submission(job_id, **spec))

    def rejected() -> JobStatus | None:
        found = status_of(reader, kafka, f"e-{job_id}") or status_of(reader, kafka, job_id)
        return found if found is not None and found.state is JobState.REJECTED else None

    assert reason in until(rejected).reason


def test_ten_megabytes_of_junk_are_refused_or_set_aside_and_good_jobs_go_on(kafka: KafkaSettings, reader: Consumer) -> None:
    marker = secrets.token_hex(8)
    with pytest.raises((KafkaException, BufferError)):
        Producer(kafka.client_config()).produce(topics.JOBS, b"x" * (10 * 1024 * 1024))
    produce(kafka, *(marker.encode() + b"-%d-" % n + b"x" * (512 * 1024) for n in range(20)))
    job_id = f"good-{secrets.token_hex(4)}"
    produce(kafka, submission(job_id), key=b"any key")
    assert "262144" in until(lambda: letter_with(reader, kafka, marker.encode() + b"-19-")).reason.replace(",", "").replace(" KiB", "")

    def succeeded() -> bool:
        found = status_of(reader, kafka, job_id)
        return found is not None and found.state is JobState.SUCCEEDED

    until(succeeded)


def test_a_repeated_event_is_one_job(kafka: KafkaSettings, reader: Consumer, stack: LiveStack) -> None:
    job_id = f"twice-{secrets.token_hex(4)}"
    produce(kafka, submission(job_id), submission(job_id), submission(job_id, event_id=f"other-{job_id}"))

    def final() -> JobStatus | None:
        found = status_of(reader, kafka, job_id)
        return found if found is not None and found.state.final else None

    assert until(final).state is JobState.SUCCEEDED
    attempts = f"SELECT count() AS attempts FROM attempts WHERE job_id = '{job_id}'"
    until(lambda: stack.rows(attempts) == [{"attempts": 1}], lambda: stack.rows(attempts))
