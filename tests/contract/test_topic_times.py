"""What a broker makes of a record whose producer's clock is off: by the topic table's settings, and without them."""

import time
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from trainhouse.events.bus.admin import create_topics
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import jobs_topic, topics_of

pytestmark = pytest.mark.stack
HOUR_MS = 3_600_000
OFF_MS = (2 * HOUR_MS, -2 * HOUR_MS, 30 * HOUR_MS, -100 * 24 * HOUR_MS)


def made(kafka: str, name: str, config: dict[str, str]) -> str:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    return name


def refusals(kafka: str, topic: str) -> list[int]:
    """Of records whose producer's clock is off so far: those that the broker refuses."""
    refused: list[int] = []
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    for off_ms in OFF_MS:

        def done(error: object, _: object, off_ms: int = off_ms) -> None:
            if error is not None:
                refused.append(off_ms)

        producer.produce(topic, b"x", timestamp=time.time_ns() // 1_000_000 + off_ms, on_delivery=done)
        producer.flush(30)
    return refused


def times_ms(kafka: str, topic: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": kafka, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        return [message.timestamp()[1] for message in reader.consume(len(OFF_MS), timeout=30)]
    finally:
        reader.close()


def test_a_record_of_a_wrong_clock_is_taken_and_has_the_brokers_time(kafka: str) -> None:
    topic = made(kafka, f"times-{uuid.uuid4().hex[:8]}", topics_of("p")[0].config())
    before_ms = time.time_ns() // 1_000_000
    assert refusals(kafka, topic) == []
    assert all(before_ms - 1_000 <= at_ms <= time.time_ns() // 1_000_000 + 1_000 for at_ms in times_ms(kafka, topic))


def test_without_that_setting_brokers_refuse_it(kafka: str) -> None:
    """What the setting is for (KIP-1030)."""
    assert set(refusals(kafka, made(kafka, f"times-{uuid.uuid4().hex[:8]}", {}))) >= {2 * HOUR_MS, 30 * HOUR_MS}


def test_topics_that_an_older_version_made_are_given_the_setting_those_of_projects_too(kafka: str) -> None:
    settings = KafkaSettings(bootstrap=kafka)
    topic = made(kafka, jobs_topic(f"p{uuid.uuid4().hex[:8]}"), {"message.timestamp.type": "CreateTime"})
    create_topics(settings)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": kafka})
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["message.timestamp.type"].value == "LogAppendTime"
    assert refusals(kafka, topic) == []
