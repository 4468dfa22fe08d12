"""Jobs and versions that a sweep of the store must leave alone, read from topics of real Kafka; what is not read whole is an error."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.dataset_versions import publish, version
from trainhouse.checkpointing.chain.chunks import GRACE_S
from trainhouse.cli.shared import named_versions
from trainhouse.cli.shared.named_versions import NotWholeError, asked_versions, published_versions, running_jobs
from trainhouse.client.errors import NotReachableError
from trainhouse.events import (
    DatasetVersion,
    DatasetVersionDeprecated,
    DatasetVersionPublished,
    Envelope,
    Event,
    EventId,
    JobState,
    JobStatus,
    OutputAnswered,
    PublishDataset,
    encode,
)
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS

ONE, TWO, OTHER = version(), version(licence="MIT"), version("noise", "audio")


class Topics:
    """The three topics, under names of their own."""

    def __init__(self, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = KafkaSettings(bootstrap=bootstrap)
        self.names = {name: f"named-{name.lower()}-{secrets.token_hex(4)}" for name in ("STATUS", "JOBS", "DATASETS", "CONTROL")}
        self.names["OF_PROJECT"] = f"{self.names['JOBS']}.audio"
        for constant in ("STATUS", "JOBS", "DATASETS", "CONTROL"):
            monkeypatch.setattr(named_versions, constant, self.names[constant])
        admin = AdminClient(self.settings.client_config())
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in self.names.values()]).values():
            made.result(30)
        self.producer = Producer(self.settings.client_config())

    def put(self, topic: str, key: str, event: Event | bytes | None) -> None:
        value = encode(Envelope(EventId(secrets.token_hex(8)), "tests", event)) if isinstance(event, Event) else event
        self.producer.produce(self.names[topic], key=key, value=value, headers=list(HEADERS))
        assert self.producer.flush(30) == 0


@pytest.fixture
def topics(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Topics]:
    yield Topics(kafka, monkeypatch)


def status(job: str, state: JobState, seq: int, age_s: float = 0.0) -> JobStatus:
    return JobStatus(job_id=job, state=state, status_seq=seq, updated_at_ms=int((time.time() - age_s) * 1000))


def published(facts: DatasetVersion) -> DatasetVersionPublished:
    return DatasetVersionPublished(version=facts, created_by="ada", published_at_ms=1)


def test_jobs_that_are_not_over_for_a_day_are_running(topics: Topics) -> None:
    with pytest.raises(NotWholeError, match="is empty"):
        running_jobs(topics.settings, GRACE_S)
    for job, state, age_s in (("old", JobState.RUNNING, 9e6), ("new", JobState.SUCCEEDED, 60.0), ("over", JobState.FAILED, GRACE_S + 60)):
        topics.put("STATUS", job, status(job, JobState.RUNNING, 1, 9e6))
        topics.put("STATUS", job, status(job, state, 2, age_s))
    topics.put("STATUS", "gone", status("gone", JobState.RUNNING, 1))
    topics.put("STATUS", "gone", None)
    found = running_jobs(topics.settings, GRACE_S)
    assert found.job_ids == {"old", "new"} and found.is_over("over") and found.is_over("gone") and not found.is_over("old")
    topics.put("STATUS", "newer-program", b"{}")
    with pytest.raises(NotWholeError, match="cannot read"):
        running_jobs(topics.settings, GRACE_S)


def test_versions_that_were_published_or_asked_for(topics: Topics) -> None:
    with pytest.raises(NotWholeError, match="has no version"):
        published_versions(topics.settings)
    topics.put("DATASETS", "speech", published(ONE))
    topics.put("DATASETS", "noise", published(OTHER))
    topics.put(
        "DATASETS",
        "speech",
        DatasetVersionDeprecated(dataset="speech", sha256=ONE.sha256, user="bo", reason="wrong", deprecated_at_ms=2),
    )
    assert published_versions(topics.settings) == {("default", ONE.sha256), ("audio", OTHER.sha256)}
    topics.put("JOBS", "speech", publish(TWO))
    topics.put("OF_PROJECT", "noise", publish(OTHER))
    topics.put("JOBS", "other", b"what this program does not read")
    assert asked_versions(topics.settings) == {("default", TWO.sha256), ("audio", OTHER.sha256)}


def answer(facts: DatasetVersion, job: str, refusal: str) -> OutputAnswered:
    return OutputAnswered(job_id=job, pool="default", partition=0, dataset=facts.dataset, sha256=facts.sha256, refusal=refusal)


def test_an_output_that_was_refused_is_asked_for_no_longer(topics: Topics) -> None:
    def request(facts: DatasetVersion, job: str | None) -> PublishDataset:
        return publish(facts).model_copy(update={"job_id": job, "pool": "default" if job else None})

    asked_one, asked_two = ("default", ONE.sha256), ("default", TWO.sha256)
    for facts in (ONE, TWO):
        topics.put("JOBS", "a", request(facts, "a"))
    topics.put("CONTROL", "0", answer(ONE, "b", "of another job"))
    topics.put("CONTROL", "0", answer(TWO, "a", ""))
    topics.put("CONTROL", "0", b"what this program does not read: " + OutputAnswered.event_type.encode())
    assert asked_versions(topics.settings) == {asked_one, asked_two}
    time.sleep(0.002)  # the brokers' milliseconds tell requests from answers
    topics.put("CONTROL", "0", answer(ONE, "a", "its schema breaks"))
    assert asked_versions(topics.settings) == {asked_two}
    time.sleep(0.002)
    topics.put("JOBS", "a", request(ONE, "a"))
    assert asked_versions(topics.settings) == {asked_one, asked_two}, "asked for again"
    time.sleep(0.002)
    topics.put("CONTROL", "0", answer(ONE, "a", "its schema breaks"))
    topics.put("OF_PROJECT", "speech", request(ONE, None))
    assert asked_versions(topics.settings) == {asked_one, asked_two}, "a person asks for it too"


def test_a_list_with_a_record_that_cannot_be_read_is_not_whole(topics: Topics) -> None:
    topics.put("DATASETS", "speech", published(ONE))
    topics.put("DATASETS", "speech", b"of a newer program")
    with pytest.raises(NotWholeError, match="cannot read"):
        published_versions(topics.settings)


def test_brokers_that_are_away_are_an_error(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_versions, "METADATA_TIMEOUT_S", 0.5)
    away = KafkaSettings(bootstrap="127.0.0.1:1")
    for read in (published_versions, asked_versions):
        with pytest.raises(NotReachableError):
            read(away)
