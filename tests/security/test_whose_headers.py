"""A record whose header has a name that is no UTF-8, as who may write to one topic can send it: brokers take it, and it stops nobody."""

from __future__ import annotations

import asyncio
import struct

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.util import calc_crc32c
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trainhouse.events.bus.kafka import consumer, headers_of
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.kafka.log import KafkaLog

TOPIC = "trainhouse.jobs.poison"
SENT = (b"one", b"two", b"three")
CRC_AT, AFTER_CRC = 17, 21


async def send(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for value in SENT:
            await producer.send_and_wait(TOPIC, value, headers=[("hXXh", b"x")] if value == b"two" else [])
    finally:
        await producer.stop()


async def by_stream_processors(settings: KafkaSettings) -> list[tuple[bytes | None, tuple[tuple[str, bytes], ...]]]:
    log = KafkaLog(settings)
    tail = await log.open_tail(TOPIC, {0: 0})
    found = []
    try:
        async with asyncio.timeout(60):
            while len(found) < len(SENT):
                found += [(e.value, e.headers) for e in await tail.take(1.0)]
    finally:
        await tail.close()
        await log.close()
    return found


def test_a_name_that_is_no_text_stops_neither_stream_processors_nor_other_readers(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = BatchBuilder._build

    def broken(self: BatchBuilder) -> bytes:
        data = bytearray(whole(self))
        if (at := data.find(b"hXXh")) >= 0:
            data[at + 1] = 0xFF
            struct.pack_into(">I", data, CRC_AT, calc_crc32c(bytes(data[AFTER_CRC:])))
        return bytes(data)

    settings = KafkaSettings(bootstrap=kafka)
    admin = AdminClient(settings.client_config())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    monkeypatch.setattr(BatchBuilder, "_build", broken)
    asyncio.run(send(kafka))
    found = asyncio.run(by_stream_processors(settings))
    assert [value for value, _ in found] == list(SENT) and found[1][1] == (("h\ufffdXh", b"x"),)
    reader = consumer(settings)
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    messages = []
    while len(messages) < len(SENT):
        messages += [m for m in reader.consume(10, 30.0) if m.error() is None]
    for _ in range(1000):
        headers_of(messages[0])  # until the interpreter calls it in its fast way, which does not look for exceptions that are left behind
    for _ in range(2):
        assert [(m.value(), headers_of(m)) for m in messages] == [(value, []) for value in SENT], "nor at the second question"
    reader.close()
