"""Tombstones on real brokers: an open transaction shows what came between, and a pass that was paused is shut out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.waiting import until
from trainhouse.events.archive.log import journal_reader, record_of
from trainhouse.events.bus.kafka import producer_config, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.tombstones.compacted_topics import KafkaTopics, SupersededPassError
from trainhouse.events.tombstones.one_pass import EVER, Buried, Looked, bury
from trainhouse.events.tombstones.rule import Due, may_end

pytestmark = pytest.mark.stack


class Topic:
    """A compacted topic with one partition."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.name = f"ended-{uuid.uuid4().hex[:8]}"
        config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        admin = AdminClient(settings.client_config())
        for future in admin.create_topics([NewTopic(self.name, 1, 1, config=config)]).values():
            future.result(30)
        self.producer = Producer(producer_config(settings, **{"linger.ms": 0}))

    def put(self, *keys: str) -> None:
        for key in keys:
            self.producer.produce(self.name, key.encode(), key.encode(), partition=0)
        assert self.producer.flush(30) == 0

    def kept(self) -> dict[str, bool]:
        """The keys, and whether the newest record of each is no tombstone."""
        with closing(journal_reader(self.settings)) as reader:
            return {(r.key or b"").decode(): r.value is not None for r in map(record_of, read_to_end(reader, self.name, [0]))}

    def due(self, topics: KafkaTopics) -> Due:
        found = Due(self.name, 0, EVER, EVER, may_end)
        for record in topics.records(self.name, 0):
            found.take(record)
        return found


@pytest.fixture
def topic(kafka: str) -> Topic:
    return Topic(KafkaSettings(bootstrap=kafka))


@pytest.fixture
def topics(topic: Topic) -> Iterator[KafkaTopics]:
    with closing(KafkaTopics(topic.settings)) as made:
        yield made


def test_keys_that_are_due_get_a_tombstone_each_and_a_repeat_writes_none(topic: Topic, topics: KafkaTopics) -> None:
    topic.put("a", "b", "a")
    assert bury(topics, Looked((topic.due(topics),))) == [Buried(topic.name, 2, 2, 0)]
    until(lambda: topic.kept() == {"a": False, "b": False}, topic.kept)  # the end that readers see follows a transaction's
    assert topic.due(topics).keys == {}


def test_what_was_written_between_is_seen_while_the_transaction_is_open(topic: Topic, topics: KafkaTopics) -> None:
    topic.put("a", "b")
    due = topic.due(topics)
    topic.put("a", "c")
    assert bury(topics, Looked((due,))) == [Buried(topic.name, 2, 1, 1)]
    until(lambda: topic.kept() == {"a": True, "b": False, "c": True}, topic.kept)  # the end that readers see follows a transaction's


def test_what_comes_after_the_tombstone_is_newer(topic: Topic, topics: KafkaTopics) -> None:
    topic.put("a")
    due = topic.due(topics)
    topics.shut_out_others()
    landed = topics.begin(topic.name, 0, [b"a"])
    topic.put("a")
    between: Sequence[object] = list(topics.appended_since(topic.name, 0, due.read_to, max(landed.values())))
    assert between == []
    topics.commit()
    until(lambda: topic.kept() == {"a": True}, topic.kept)  # the end that readers see follows a transaction's


def test_a_paused_pass_is_shut_out_by_a_later_one_and_what_it_wrote_never_counts(topic: Topic, topics: KafkaTopics) -> None:
    topic.put("a")
    topics.shut_out_others()
    topics.begin(topic.name, 0, [b"a"])
    with closing(KafkaTopics(topic.settings)) as later:
        later.shut_out_others()
        topic.put("a")
        with pytest.raises(SupersededPassError):
            topics.commit()
    until(lambda: topic.kept() == {"a": True}, topic.kept)  # the end that readers see follows a transaction's
