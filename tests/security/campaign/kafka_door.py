"""Probes of Kafka: reads and writes of every topic without a credential, with junk ones, and with the names of the stack's own principals.

Holds: a topic that gives a record, or takes one, is a success.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.security.campaign.outcome import Outcome
from tests.security.campaign.target import Target, exports
from trainhouse.events.wire.topics import TOPICS

TIMEOUT_S = 1.5
PRINCIPALS = ("scheduler", "intake", "agent", "gateway", "admin", "trainhouse")


def probe(target: Target, count: int, seed: int) -> Iterator[Outcome]:
    """`count` connections; blocks TIMEOUT_S for each that is refused by silence."""
    rng = random.Random(seed)
    bootstrap = exports(target.stack)["TRAINHOUSE_KAFKA_BOOTSTRAP"]
    for _ in range(count):
        identity = rng.choice(["none", "junk", *PRINCIPALS])
        way = rng.choice(["metadata", "read", "write"])
        topic = rng.choice(TOPICS).name
        yield _one(_config(bootstrap, identity, rng), identity, way, topic)


def _config(bootstrap: str, identity: str, rng: random.Random) -> dict[str, Any]:
    common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 1000}
    if identity == "none":
        return common
    passwords = ["", "admin", identity, "password", "' OR 1=1", "\x00"]
    return common | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": rng.choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        "sasl.username": identity,
        "sasl.password": rng.choice(passwords) or "x",
    }


def _one(config: Mapping[str, Any], identity: str, way: str, topic: str) -> Outcome:
    tried = f"{way} {topic} as {identity}"
    try:
        leak = {"metadata": _metadata, "read": _read, "write": _write}[way](dict(config), topic)
    except KafkaException as error:
        return Outcome("kafka", way, tried, error.args[0].name())
    return Outcome("kafka", way, tried, "given" if leak else "nothing", leak)


def _metadata(config: dict[str, Any], topic: str) -> str:
    found = AdminClient(config).list_topics(timeout=TIMEOUT_S)
    return f"{len(found.topics)} topics" if found.topics else ""


def _read(config: dict[str, Any], topic: str) -> str:
    reader = Consumer(config | {"group.id": "probe", "auto.offset.reset": "earliest"})
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        message = reader.poll(TIMEOUT_S)
        return f"{len(message.value() or b'')} bytes" if message is not None and message.error() is None else ""
    finally:
        reader.close()


def _write(config: dict[str, Any], topic: str) -> str:
    taken: list[str] = []
    producer = Producer(config | {"message.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(topic, b"{}", on_delivery=lambda error, message: taken.append(topic) if error is None else None)
    producer.flush(TIMEOUT_S + 1)
    return f"a record was taken by {topic}" if taken else ""
