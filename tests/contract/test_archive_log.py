"""A topic partition as the archive reads and trims it: the one in memory and the real Kafka, held to the same promises."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.support.fakes.archive_fakes import MemoryPartition
from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.events.archive.errors import ArchiveCorruptError, ArchiveGapError
from trainhouse.events.archive.log import KafkaPartition, PartitionLog, journal_reader
from trainhouse.events.archive.partition import PartitionArchive
from trainhouse.events.archive.reading import journal_records
from trainhouse.events.archive.segments import LogRecord
from trainhouse.events.archive.trimming import trim
from trainhouse.events.archive.writing import archive_partition
from trainhouse.events.bus.admin import topic_id
from trainhouse.events.bus.kafka import producer_config, watermarks
from trainhouse.events.model.errors import BusUnavailableError, RecordsGoneError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.projections.ingest import archive_source as archived
from trainhouse.projections.ingest import reader as reader_of_lanes
from trainhouse.projections.ingest.reader import KafkaSource
from trainhouse.projections.ingest.topic_history import KafkaHistory
from trainhouse.projections.store.positions import Range

HEADERS = [("content-type", b"text/plain"), ("none", None)]


@dataclass
class Site:
    """A partition with nothing in it, and how to write to it."""

    topic: str
    log: PartitionLog
    write: Callable[[int], None]
    abort: Callable[[], None]


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> KafkaSettings:
    return KafkaSettings(bootstrap=request.getfixturevalue("kafka"))


def in_memory() -> Site:
    log = MemoryPartition([])

    def write(number: int) -> None:
        _, high = log.bounds()
        log.stored.append(LogRecord(0, high, 1000, b"key", b"\xff%d" % number, tuple(HEADERS)))
        log.markers = 1

    def abort() -> None:
        log.markers += 2

    return Site("memory", log, write, abort)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.stack)])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "memory":
        yield in_memory()
        return
    found: KafkaSettings = request.getfixturevalue("settings")
    yield from on_kafka(found)


@pytest.fixture
def real(settings: KafkaSettings) -> Iterator[Site]:
    yield from on_kafka(settings)


def on_kafka(settings: KafkaSettings) -> Iterator[Site]:
    topic = f"archived-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(settings.client_config())
    for future in admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})]).values():
        future.result(30)
    producer = Producer(producer_config(settings, **{"transactional.id": topic, "linger.ms": 0}))
    producer.init_transactions(60)

    def write(number: int, commit: bool = True) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"\xff%d" % number, b"key", partition=0, headers=HEADERS, timestamp=1000)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        until(lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED), "the transaction's marker")

    def end(isolation: IsolationLevel) -> int:
        """Brokers acknowledge a commit before its marker is written: until then its records are not read as committed."""
        asked = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=isolation, request_timeout=30)
        (answer,) = asked.values()
        return int(answer.result(30).offset)

    reader = journal_reader(settings)
    yield Site(topic, KafkaPartition(settings, reader, topic, 0), write, lambda: write(-1, commit=False))
    reader.close()


def test_committed_records_are_read_whole_from_anywhere(site: Site) -> None:
    assert list(site.log.records(0)) == []
    for number in range(4):
        site.write(number)
        site.abort()
    found = list(site.log.records(0))
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in found] == [(b"key", b"\xff%d" % n, 1000, tuple(HEADERS)) for n in range(4)]
    low, high = site.log.bounds()
    assert low == 0 and high > found[-1].offset
    assert list(site.log.records(found[2].offset)) == found[2:]
    assert list(site.log.records(found[1].offset + 1)) == found[2:]
    assert list(site.log.records(high)) == []


def test_what_was_deleted_is_never_read_over(site: Site) -> None:
    for number in range(4):
        site.write(number)
    found = list(site.log.records(0))
    assert site.log.delete_before(found[2].offset) == found[2].offset
    assert site.log.bounds()[0] == found[2].offset
    for start in (0, found[1].offset):
        with pytest.raises(RecordsGoneError, match=str(found[2].offset)):
            list(site.log.records(start))
    assert list(site.log.records(found[2].offset)) == found[2:]


def test_an_archive_over_transactions_is_whole_at_every_joint(site: Site) -> None:
    archive = PartitionArchive(ObjectArchive(MemoryObjectStore()), site.topic, "id", 0)
    for number in range(6):
        site.write(number)
        if number % 2:
            site.abort()
        if number % 3 == 1:
            archive_partition(site.log, archive, 5)
    everything = list(site.log.records(0))
    assert archive_partition(site.log, archive, 5).end == archive.end()
    assert list(archive.read(0, archive.end())) == everything
    for upto in [r.offset for r in everything]:
        assert trim(site.log, archive, upto) == upto
        assert [*archive.read(0, upto), *site.log.records(upto)] == everything


def written_and_trimmed(
    real: Site, settings: KafkaSettings, objects: ObjectArchive, count: int, *, archived: int, gone: int
) -> list[LogRecord]:
    """Writes so many records, of which the archive holds the first `archived` and the topic no longer the first `gone`; all of them."""
    archive = PartitionArchive(objects, real.topic, topic_id(settings, real.topic), 0)
    for number in range(count):
        if number == archived:
            archive_partition(real.log, archive, 6)
        real.write(number)
    everything = list(real.log.records(0))
    trim(real.log, archive, everything[gone].offset)
    return everything


@pytest.mark.stack
def test_a_journal_that_was_trimmed_is_read_from_archive_and_topic(real: Site, settings: KafkaSettings) -> None:
    objects = ObjectArchive(MemoryObjectStore())
    everything = written_and_trimmed(real, settings, objects, 8, archived=6, gone=4)
    reader = journal_reader(settings)
    for start in (0, everything[3].offset, everything[4].offset, everything[7].offset):
        read = journal_records(settings, reader, real.topic, [0], objects, {0: start})
        assert list(read) == [r for r in everything if r.offset >= start]
    reader.close()


@pytest.mark.stack
def test_a_reader_whose_next_record_is_trimmed_away_fails_and_does_not_go_on_behind_it(real: Site, settings: KafkaSettings) -> None:
    for number in range(3):
        real.write(number)
    last = list(real.log.records(0))[-1]
    real.log.delete_before(last.offset)
    reader = journal_reader(settings)
    reader.assign([TopicPartition(real.topic, 0, 0)])
    message = until(lambda: next(iter(reader.consume(1, timeout=1)), None), "an answer of the broker")
    error = message.error()
    assert error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET, error
    reader.close()


def test_another_topics_records_are_not_taken_for_the_archived_ones(site: Site) -> None:
    archive = PartitionArchive(ObjectArchive(MemoryObjectStore()), site.topic, "id", 0)
    site.write(0)
    (written,) = site.log.records(0)
    archive.add(0, [replace(written, value=b"another")])
    with pytest.raises(ArchiveCorruptError, match="not what the topic holds"):
        trim(site.log, archive, 1)
    assert site.log.bounds()[0] == 0


@pytest.mark.stack
def test_a_lane_reads_a_trimmed_journal_as_if_it_were_whole(real: Site, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (archived, reader_of_lanes):
        monkeypatch.setattr(module, "ARCHIVED", (real.topic,))
    objects = ObjectArchive(MemoryObjectStore())
    offsets = [r.offset for r in written_and_trimmed(real, settings, objects, 9, archived=7, gone=5)]

    def read(source: KafkaSource, start: int, count: int) -> list[int]:
        source.start({(real.topic, 0): start} if start else {})
        found: list[int] = []
        until(lambda: found.extend(r.offset for r in source.poll(0.05)) or len(found) >= count, "records")
        return found + [r.offset for r in source.poll(0.0)]

    for first in (0, 2, 5, 6, 8):
        source = KafkaSource(settings, [real.topic], 2, 10_000, objects)
        assert read(source, offsets[first] if first else 0, 9 - first) == offsets[first:]
        for begin, end in ((0, 3), (3, 6), (4, 9), (6, 8)):
            wanted = Range(real.topic, 0, offsets[begin], offsets[end - 1] + 1)
            assert [r.offset for r in source.read([wanted])] == offsets[begin:end]
        source.close()
    for last in (0, 3, 6, 8):
        history = KafkaHistory(settings, {(real.topic, 0): offsets[last]}, 2, 10_000, objects)
        history.start({})
        found: list[int] = []
        until(lambda history=history, found=found: found.extend(r.offset for r in history.poll(0.05)) or history.finished, "its end")  # type: ignore[misc]
        assert found == offsets[:last]
        history.close()
    without = KafkaSource(settings, [real.topic], 2, 10_000)
    with pytest.raises(ArchiveGapError, match=f"begins at offset {offsets[5]}"):
        without.start({})
    without.close()


def test_a_topic_that_expires_by_itself_begins_where_it_begins() -> None:
    old = archived.OldRecords(KafkaSettings(), None)
    reader = journal_reader(KafkaSettings(bootstrap="127.0.0.1:1"))
    assert old.begin(reader, topics.METRICS, 0, 3, 10) == 10
    assert old.take(9, 9) == []
    reader.close()


@pytest.mark.stack
def test_a_partition_that_the_client_does_not_know_yet_is_waited_for(settings: KafkaSettings) -> None:
    topic = f"growing-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(settings.client_config())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    reader = journal_reader(settings)
    try:
        until(lambda: watermarks(reader, topic, 0) == (0, 0), "the topic")
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(watermarks, reader, topic, 1)
            assert wait([asked], 1.0).not_done, asked.result()
            admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
            assert asked.result(30) == (0, 0)
        with pytest.raises(BusUnavailableError, match=f"{topic}-7: its ends are not known"):
            watermarks(reader, topic, 7, timeout_s=1.0)
    finally:
        reader.close()


@pytest.mark.stack
@pytest.mark.parametrize("of_topic", ["/starts", "ends/", "d/ts//jiag"])
def test_the_archive_of_a_topic_whose_id_has_slashes_goes_on(real: Site, object_store_endpoint: StoreServer, of_topic: str) -> None:
    """An id is base64: SeaweedFS listed nothing under one with `//`, and the archive began with its first object for ever."""
    server = object_store_endpoint
    given = {"endpoint": server.endpoint, "access_key": server.access_key, "secret_key": server.secret_key, "bucket": server.bucket}
    objects = ObjectArchive(S3ObjectStore(StoreSettings.model_validate(given)))
    for number in range(2):
        real.write(number)
        done = archive_partition(real.log, PartitionArchive(objects, real.topic, of_topic, 0))
    assert (done.records, PartitionArchive(objects, real.topic, of_topic, 0).end()) == (1, done.end)
