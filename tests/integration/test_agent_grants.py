"""The agent's reader of grants of datasets, on a real broker."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.waiting import until
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events import DatasetGranted, DatasetGrantRevoked, Event, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DATASETS
from trainhouse.workers.agent.launch import grant_reader
from trainhouse.workers.agent.launch.grant_reader import GrantReader

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.stack
SHA = "a" * 64


@pytest.fixture
def publish(settings: KafkaSettings) -> Callable[[Event], None]:
    """Puts an event on the topic of datasets, as intake does."""
    producer = EventProducer(settings)

    def send(event: Event) -> None:
        producer.send(DATASETS, envelope_of(event, id=secrets.token_hex(8), source="trainhouse/intake", now_ms=1))
        producer.flush()

    return send


@pytest.fixture
def reader(settings: KafkaSettings) -> Iterator[GrantReader]:
    made = GrantReader(settings)
    yield made
    made.close()


def granted(dataset: str, number: int, sha256: str | None = SHA) -> DatasetGranted:
    about = {"dataset": dataset, "sha256": sha256, "owner": "speech", "project": "vision", "purpose": "research"}
    return DatasetGranted.model_validate(about | {"number": number, "granted_at_ms": 1})


def revoked(dataset: str, number: int) -> DatasetGrantRevoked:
    about = {"dataset": dataset, "sha256": SHA, "owner": "speech", "project": "vision", "purpose": "research", "user": "bo"}
    return DatasetGrantRevoked.model_validate(about | {"reason": "the paper is out", "number": number, "revoked_at_ms": 1})


def test_what_is_on_the_topic_counts_from_its_beginning_and_as_it_changes(
    publish: Callable[[Event], None], reader: GrantReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grant_reader, "LOOK_AGAIN_S", 0.0)
    dataset = f"speech-{secrets.token_hex(4)}"
    key = GrantKey(dataset, SHA, "vision", "research")
    publish(granted(dataset, 1))
    assert not reader.covers(key), "nothing is read before it is needed"
    assert reader.why_not(key) == "" and reader.covers(key)
    for other in (
        GrantKey(dataset, "b" * 64, "vision", "research"),
        GrantKey(dataset, SHA, "vision", "adverts"),
        GrantKey(dataset, SHA, "robots", "research"),
    ):
        with pytest.raises(ObjectStoreUnavailableError, match=r"has no grant of .* yet"):
            reader.why_not(other)

    publish(revoked(dataset, 2))
    reason = reader.why_not(key)
    assert "was revoked by bo: the paper is out; ranks read no more of it. Its owner, project speech" in reason
    assert f"trainhouse data grant {key.reference} --project vision --purpose research" in reason and not reader.covers(key)
    publish(granted(dataset, 3, sha256=None))
    until(lambda: reader.covers(key), "a grant of all versions, which nothing asked for")
    assert reader.why_not(GrantKey(dataset, "b" * 64, "vision", "research")) == ""


def test_without_brokers_there_is_no_leave_yet() -> None:
    reader = GrantReader(KafkaSettings(bootstrap="127.0.0.1:9"))
    try:
        with pytest.raises(ObjectStoreUnavailableError, match="grants of datasets cannot be read"):
            reader.why_not(GrantKey("speech", SHA, "vision", "research"))
    finally:
        reader.close()


def test_it_reads_on_after_errors_and_knows_that_it_has_read_all(
    publish: Callable[[Event], None], reader: GrantReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that cannot be made, and one that reaches no broker any more, are made anew; revocations of then are seen."""
    monkeypatch.setattr(grant_reader, "CHECK_S", 0.1)
    monkeypatch.setattr(grant_reader, "MOST_AGAIN_S", 0.1)
    made = grant_reader.consumer
    failures = [KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread")) for _ in range(3)]

    def factory(*given: Any, **more: Any) -> Any:
        if threading.current_thread().name == "grants" and failures:
            raise failures.pop()
        return made(*given, **more)

    monkeypatch.setattr(grant_reader, "consumer", factory)
    dataset = f"speech-{secrets.token_hex(4)}"
    key = GrantKey(dataset, SHA, "vision", "research")
    publish(granted(dataset, 1))
    reader._begin()
    until(lambda: not failures, "three tries")
    until(lambda: reader.covers(key), "the grant")
    before_s = reader._current_s
    until(lambda: reader._current_s > before_s, "a look at the topic's ends that finds all of it read")

    looks = [BusUnavailableError("the client lost all brokers")]
    ends = grant_reader.watermarks

    def look(*given: Any) -> Any:
        if threading.current_thread().name == "grants" and looks:
            raise looks.pop()
        return ends(*given)

    monkeypatch.setattr(grant_reader, "watermarks", look)
    until(lambda: not looks, "a look that fails")
    publish(revoked(dataset, 2))
    until(lambda: not reader.covers(key), "the revocation")
