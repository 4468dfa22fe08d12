"""A broker that ends as one does that stops leaves clients of librdkafka without any broker, for good: they are made anew, and every record
comes once and in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.stack.fenced import Fenced
from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import PoolCreated, envelope_of
from trainhouse.events.bus import outage
from trainhouse.events.bus.kafka import EventProducer, consumer, producer_config
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.agent.ship.outbox import Outbox

# So that they ask about topics while the broker is fenced.
ASKING = {"topic.metadata.refresh.interval.ms": 200, "log_level": 0}


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fenced]:
    """Where clients connect to a broker of our own."""
    server = KafkaServer(tmp_path_factory.mktemp("fenced"))
    way = Fenced(server.port)
    server.own_settings_file.write_text(f"advertised.listeners=PLAINTEXT://127.0.0.1:{way.port}\n")
    with server:
        admin = AdminClient(at(way).client_config(log_level=0))
        for made in admin.create_topics([NewTopic(CONTROL, 2, 1), NewTopic("few", 1, 1)]).values():
            made.result(60)
        yield way
        way.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "AFTER_OUTAGE_S", 1.0)


def at(way: Fenced) -> KafkaSettings:
    return KafkaSettings(bootstrap=f"127.0.0.1:{way.port}")


def reaches(client: Consumer | Producer, topic: str = CONTROL) -> bool:
    with suppress(KafkaException):
        return bool(client.list_topics(topic, timeout=1.0).brokers)
    return False


def stop_broker(way: Fenced, *clients: Consumer | Producer) -> None:
    """As clients see it: until each has had an answer without brokers, or has been refused."""
    before = way.ended
    way.fenced.set()
    until(lambda: way.ended > before, "the last answer of the broker")
    until(lambda: not any(map(reaches, clients)), "no client has a broker")
    way.fenced.clear()


def numbers(reader: Consumer, found: list[tuple[int, int]], timeout_s: float = 0.2) -> None:
    for message in reader.consume(100, timeout_s):
        if message.error() is None:
            found.append((message.partition() or 0, message.offset() or 0))


def test_readers_are_opened_anew_and_get_each_record_once(way: Fenced) -> None:
    writer = Producer(producer_config(at(way), log_level=0))
    readers = [consumer(at(way), **ASKING) for _ in range(3)]
    found: list[list[tuple[int, int]]] = [[] for _ in readers]
    for reader in readers:
        reader.assign([TopicPartition(CONTROL, 0, 0), TopicPartition(CONTROL, 1, 0)])

    def all_came(offsets: int) -> bool:
        for reader, into in zip(readers, found, strict=True):
            numbers(reader, into)
        return all(len(into) >= offsets for into in found)

    for _ in range(3):
        writer.produce(CONTROL, b"x", partition=0)
    assert writer.flush(60) == 0
    until(lambda: all_came(3), "the first records")
    for turn in range(1, 10):
        stop_broker(way, *readers)
        writer = Producer(producer_config(at(way), log_level=0))
        for partition in (0, 1):
            writer.produce(CONTROL, b"x", partition=partition)
        assert writer.flush(60) == 0
        until(lambda: all_came(3 + 2 * turn), "the records behind the outage", timeout_s=120)  # noqa: B023
        if any(reader.reopened for reader in readers):  # type: ignore[attr-defined]
            break
    assert any(reader.reopened for reader in readers), "the fault was not met"  # type: ignore[attr-defined]
    expected = [(0, offset) for offset in range(3 + turn)] + [(1, offset) for offset in range(turn)]
    for reader, into in zip(readers, found, strict=True):
        numbers(reader, into)
        assert sorted(into) == expected
        reader.close()


def test_a_reader_whose_fetch_is_open_has_not_lost_the_brokers(way: Fenced) -> None:
    reader = consumer(at(way), **{"fetch.wait.max.ms": 2500, "log_level": 0})
    reader.assign([TopicPartition("few", 0, OFFSET_END)])
    reader.poll(1.0)  # what is asked now is answered behind the fetch
    assert not reader._watch.lost(reader, "few")  # type: ignore[attr-defined]
    reader.close()


def test_an_outbox_and_a_producer_of_events_go_on_with_new_ones(way: Fenced) -> None:
    watch = ProducerWatch(at(way))
    made: list[Producer] = []
    config = producer_config(at(way), **{"message.timeout.ms": 0, "error_cb": watch.on_error, **ASKING})

    def make() -> Producer:
        made.append(Producer(config))
        return made[-1]

    outbox = Outbox(make, watch=watch)
    events = EventProducer(at(way), **{"message.timeout.ms": 2000, **ASKING})
    acks: list[int] = []

    def offer(number: int) -> None:
        envelope = envelope_of(PoolCreated(pool="p", partition=number), id=str(number), source="t", now_ms=0)
        outbox.offer(CONTROL, envelope, key="k", on_ack=lambda: acks.append(number))

    def one_taken() -> bool:
        taken: list[bool] = []
        envelope = envelope_of(PoolCreated(pool="p", partition=0), id="e", source="t", now_ms=0)
        events.send("few", envelope, on_ack=lambda error, _: taken.append(error is None))
        deadline = time.monotonic() + 3
        while not taken and time.monotonic() < deadline:
            events.poll(0.1)
        return taken == [True]

    offer(0)
    assert outbox.flush(60) and acks == [0]
    until(one_taken, "the first event")
    for turn in range(1, 10):
        stop_broker(way, made[-1], events._producer)
        offer(turn)
        assert outbox.flush(120) and acks == list(range(turn + 1))
        until(one_taken, "an event behind the outage", timeout_s=120)
        if len(made) > 1:
            break
    assert len(made) > 1, "the fault was not met"
