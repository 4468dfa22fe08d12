"""The agent's reader of grants of datasets, on a real broker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import until
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events import DatasetGranted, DatasetGrantRevoked, Event, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.dataset_grant import GrantKey
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
