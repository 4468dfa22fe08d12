"""A gateway's follower of a topic on the real Kafka: from the beginning, from the end, and in order by partition."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.topic_follower import TopicFollower

pytestmark = pytest.mark.stack


class Topic:
    """A topic of two partitions."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.name, self.settings = f"followed-{uuid.uuid4().hex[:8]}", settings
        admin = AdminClient(settings.client_config())
        for future in admin.create_topics([NewTopic(self.name, 2, 1)]).values():
            future.result(60)
        self.producer = Producer(producer_config(settings))

    def put(self, *values: str) -> None:
        for number, value in enumerate(values):
            self.producer.produce(self.name, value.encode(), partition=number % 2)
        assert self.producer.flush(60) == 0


@pytest.fixture
def topic(kafka: str) -> Iterator[Topic]:
    yield Topic(KafkaSettings(bootstrap=kafka))


async def taken(topic: Topic, *, from_end: bool) -> list[str]:
    found: list[str] = []

    def take(messages: list[Message]) -> None:
        found.extend((each.value() or b"").decode() for each in messages)

    follower = TopicFollower(topic.settings, topic.name, take, "records", from_end=from_end)
    try:
        await follower.ready()
        assert len(found) == (0 if from_end else 4), "all of before are taken, or none"
        await asyncio.to_thread(topic.put, "e", "f")
        async with asyncio.timeout(60):
            while len(found) < (2 if from_end else 6):
                await asyncio.sleep(0.02)
        await follower.ready()
    finally:
        await asyncio.to_thread(follower.close)
    return found


def test_all_of_before_is_taken_when_it_is_ready_and_then_what_comes(topic: Topic) -> None:
    topic.put("a", "b", "c", "d")
    found = asyncio.run(taken(topic, from_end=False))
    assert [each for each in found if each in "ace"] == list("ace") and [each for each in found if each in "bdf"] == list("bdf")


def test_from_the_end_nothing_of_before_is_taken(topic: Topic) -> None:
    topic.put("a", "b", "c", "d")
    assert sorted(asyncio.run(taken(topic, from_end=True))) == ["e", "f"]


def test_it_is_ready_once_all_partitions_were_read_and_what_they_had_is_taken() -> None:
    found: list[str] = []
    follower = TopicFollower(None, "none", lambda messages: found.extend((each.value() or b"").decode() for each in messages), "records")
    follower._unread = {0, 1}
    end_of = [Message(partition=number, error=KafkaError(KafkaError._PARTITION_EOF)) for number in (0, 1)]
    follower._hand_over([Message(value=b"a", partition=0), end_of[0]])
    assert found == ["a"] and not follower._ready.is_set()
    follower._hand_over([Message(value=b"b", partition=1), end_of[1]])
    assert found == ["a", "b"] and follower._ready.is_set()


def test_without_brokers_it_says_so() -> None:
    follower = TopicFollower(None, "none", lambda messages: None, "records")
    with pytest.raises(BusUnavailableError, match="no brokers, and records are asked of them"):
        asyncio.run(follower.ready())
    follower.close()
