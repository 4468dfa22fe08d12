"""The tail of one partition, as a command reads it on a real broker: committed records of a key behind a place, and no others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from trainhouse.client.quick.quick_topics import PLAINTEXT, NotQuickError, QuickTopics

pytestmark = pytest.mark.stack


def written(producer: Producer, topic: str, keys: Sequence[str], *, committed: bool) -> None:
    producer.begin_transaction()
    for number, key in enumerate(keys):
        producer.produce(topic, b'{"n": %d}' % number, key=key, partition=1)
    producer.flush(30)
    if committed:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_the_tail_of_a_partition_has_what_was_committed_behind_a_place(kafka: str) -> None:
    topic = f"tail-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(30)
    written(producer, topic, ("j", "k"), committed=True)  # 0, 1 and a marker
    written(producer, topic, ("j",), committed=False)  # 3 and a marker
    topics = QuickTopics({**PLAINTEXT, "bootstrap.servers": kafka})

    def later(key: str, offset: int, held: int) -> object:
        return topics.later(topic, key, (1, offset), held)

    assert later("k", 0, 0) == {"n": 1} and later("k", 1, 0) is None
    assert later("j", 0, 0) is None, "an aborted record is none"
    written(producer, topic, ("j", "j"), committed=True)  # 5, 6 and a marker
    for held in (0, 1, 5, 6):
        assert later("j", 0, held) == {"n": 1} and later("j", 6, held) is None
    assert later("j", 6, 7) is None, "the tables have all: at the marker"
    assert later("j", 6, 8) is None, "at the end, behind the marker"
    with pytest.raises(NotQuickError):
        topics.later("no-such-topic", "j", (0, 0), 0)
