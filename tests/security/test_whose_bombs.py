"""Batches that librdkafka cannot unpack, as an agent's account can send them: no reader stays there, and nothing is doubled."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.security.packed_bombs import MIB, send_batches
from tests.support.tables.projecting import NOW, Killed, Killing, engine_in, metrics, spec_of
from tests.support.tables.senders import senders_of
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import Event, envelope_of
from trainhouse.events.archive.log import KafkaPartition, journal_reader
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import consumer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.projections.exporter.followed_topics import ExporterBus
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.reader import KafkaSource
from trainhouse.projections.store.clickhouse import ClickHouse, ConnectClickHouse
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
BOMB = bytes(200 * MIB)
SAID = b"a batch that cannot be unpacked, or to more than 64 MiB, was not read: offsets "


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap, partitions=1)
        create_topics(settings)
        yield settings


def value_of(event: Event, name: str) -> bytes:
    return encode(envelope_of(event, id=name, source="somebody", now_ms=NOW))


def send(broker: KafkaSettings, topic: str, batches: Sequence[tuple[str | None, Sequence[bytes]]]) -> None:
    asyncio.run(send_batches(broker, topic, batches))


def one_life(broker: KafkaSettings, clickhouse: ClickHouse, until: int) -> None:
    """One life of the lane of metrics: recovers, and ingests to an offset."""
    spec = spec_of("metrics")
    lane = Lane(
        "metrics",
        KafkaSource(broker, spec.topics, 2, MIB),
        clickhouse,
        spec.builder(read_schemas(clickhouse, TABLES), NodeKeys(), senders_of()),
        Pace(0, 0),
    )
    try:
        lane.recover()
        while lane.next_offsets.get((topics.METRICS, 0), 0) < until:
            if records := lane._source.poll(0):
                lane.ingest(records)
        lane.settle()
    finally:
        lane._source.close()


def steps(clickhouse: ConnectClickHouse) -> list[int]:
    return [r[0] for r in clickhouse.rows("SELECT step FROM step_metrics WHERE metric = 'loss' ORDER BY step")]


def letters(clickhouse: ConnectClickHouse) -> list[tuple[int, bytes]]:
    found = clickhouse.rows("SELECT offset, head FROM dead_letters_rows FINAL ORDER BY offset")
    return [(int(offset), str(head).encode()) for offset, head in found]


def test_librdkafka_alone_stays_there(broker: KafkaSettings) -> None:
    send(broker, topics.LOGS, [("zstd", [b"a", BOMB]), (None, [b"after"])])
    alone = Consumer(broker.client_config(**{"group.id": "x", "log_level": 0}))
    alone.assign([TopicPartition(topics.LOGS, 0, 0)])
    errors = [m.error() for _ in range(3) for m in alone.consume(1, 30.0)]
    alone.close()
    assert len(errors) == 3 and {e.code() for e in errors if e is not None} == {KafkaError._BAD_COMPRESSION}
    ours = consumer(broker, log_level=0)
    ours.assign([TopicPartition(topics.LOGS, 0, 0)])
    found = [m for _ in range(2) for m in ours.consume(1, 30.0)]
    ours.seek(TopicPartition(topics.LOGS, 0, 1))  # as a reader whose position lies within the batch
    again = [ours.poll(30.0), ours.poll(30.0)]
    ours.close()
    assert [(m.offset(), (m.value() or b"")[: len(SAID)]) for m in found] == [(1, SAID), (2, b"after")]
    assert [(m.offset(), m.value()) for m in again if m is not None] == [(m.offset(), m.value()) for m in found]


def test_the_projector_sets_it_aside_once_wherever_it_is_killed(broker: KafkaSettings, tmp_path: Path) -> None:
    made = [value_of(metrics(n * 7, 7), f"m{n}") for n in range(4)]
    send(broker, topics.METRICS, [(None, made[:2]), ("zstd", [made[2], BOMB, b"z"]), (None, made[3:])])
    end, whole = 6, [*range(14), *range(21, 28)]
    hashes = set()
    for at, how in ((2, "after"), (4, "inside"), (5, "before"), (5, "after"), (8, "after"), (1000, "after")):
        with engine_in(tmp_path / uuid.uuid4().hex) as clickhouse:
            try:
                one_life(broker, Killing(clickhouse, at, how), end)
            except Killed:
                one_life(broker, clickhouse, end)
            assert steps(clickhouse) == whole
            ((offset, head),) = letters(clickhouse)
            assert offset == 4 and head.startswith(SAID + b"2 to 4, ")
            hashes.add(str(clickhouse.rows("SELECT * FROM dead_letters_rows FINAL")))
    assert len(hashes) == 1


def test_the_exporter_and_the_archive_go_on_behind_it(broker: KafkaSettings) -> None:
    exporter = ExporterBus(broker)
    exporter.open(from_beginning=True)
    for topic in (topics.CHECKPOINTS, topics.NODE_AUDIT):
        send(broker, topic, [(None, [b"before"]), ("zstd", [BOMB]), (None, [b"after"])])
    told: list[bytes] = []
    deadline = threading.Event()
    threading.Timer(120, deadline.set).start()
    while b"after" not in told and not deadline.is_set():
        told += [m.value() or b"" for m in exporter.poll(1.0)]
    exporter.close()
    assert [t[: len(SAID)] for t in told] == [b"before", SAID, b"after"]
    reader = journal_reader(broker)
    lives = [[(r.offset, r.value) for r in KafkaPartition(broker, reader, topics.NODE_AUDIT, 0).records(0)] for _ in range(2)]
    reader.close()
    assert [offset for offset, _ in lives[0]] == [0, 1, 2] and lives[0] == lives[1]


def test_a_batch_that_only_librdkafka_cannot_unpack_is_read(broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [bytes([n]) * MIB for n in range(40)]
    send(broker, topics.TRACKING, [("zstd", values), (None, [b"after"])])
    reader = consumer(
        broker, log_level=0, **{"receive.message.max.bytes": 10 * MIB, "fetch.max.bytes": 8 * MIB, "message.max.bytes": 8 * MIB}
    )
    reader.assign([TopicPartition(topics.TRACKING, 0, 0)])
    found: list[bytes] = []
    while b"after" not in found:
        found += [m.value() or b"" for m in reader.consume(100, 30.0)]
    reader.close()
    assert found == [*values, b"after"]
