"""The source of a lane: the log in memory and the real Kafka, held to the same promises."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.fakes.memory_source import MemoryHistory, MemoryLog, MemorySource
from tests.support.waiting import until
from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.errors import InvalidPositionError
from trainhouse.projections.ingest.reader import KafkaSource, Source
from trainhouse.projections.ingest.topic_history import History, KafkaHistory
from trainhouse.projections.record import Record
from trainhouse.projections.store.positions import Range


@dataclass
class Log:
    """A topic of one partition: how to write to it, and how to make a source for it."""

    topic: str
    append: Callable[[bytes], None]
    gap: Callable[[], None]
    source: Callable[[], Source]
    history: Callable[[int], History]


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.stack)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    topic = f"source-{uuid.uuid4().hex[:8]}"
    if request.param == "memory":
        memory = MemoryLog()
        yield Log(
            topic,
            lambda v: void(memory.append(topic, v)),
            lambda: memory.skip(topic),
            lambda: MemorySource(memory, 4),
            lambda end: MemoryHistory(memory, {(topic, 0): end}, 4),
        )
        return
    settings = KafkaSettings(bootstrap=request.getfixturevalue("kafka"))
    admin = AdminClient(settings.client_config())
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    producer = Producer(producer_config(settings, **{"transactional.id": topic, "linger.ms": 0}))
    producer.init_transactions(60)

    def write(value: bytes, commit: bool) -> None:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    yield Log(
        topic,
        lambda v: write(v, True),
        lambda: write(b"aborted", False),
        lambda: KafkaSource(settings, [topic], 4, 10_000),
        lambda end: KafkaHistory(settings, {(topic, 0): end}, 4, 10_000),
    )


def void(_: object) -> None:
    """Drops a value."""


def take(source: Source, count: int) -> list[Record]:
    found: list[Record] = []
    until(lambda: found.extend(source.poll(0.05)) or len(found) >= count, lambda: f"{count} records, not {found}", every_s=0)  # type: ignore[func-returns-value]
    return found


def test_all_is_read_in_order_once_and_gaps_do_not_matter(log: Log) -> None:
    for n in range(6):
        log.append(b"%d" % n)
        if n % 2:
            log.gap()
    source = log.source()
    source.start({})
    found = take(source, 6)
    assert [r.value for r in found] == [b"%d" % n for n in range(6)]
    offsets = [r.offset for r in found]
    assert offsets == sorted(set(offsets))
    assert source.poll(0.05) == []
    source.close()


def test_it_reads_on_from_given_offsets_and_again_what_was_read(log: Log) -> None:
    for n in range(6):
        log.append(b"%d" % n)
        log.gap()
    source = log.source()
    source.start({})
    first = take(source, 6)
    again = source.read([Range(log.topic, 0, first[1].offset, first[3].offset + 1)])
    assert [r.value for r in again] == [b"1", b"2", b"3"]
    # A range whose last records are gone (compaction, retention) ends all the same.
    assert [r.value for r in source.read([Range(log.topic, 0, first[5].offset, first[5].offset + 2)])] == [b"5"]
    source.close()
    later = log.source()
    later.start({(log.topic, 0): first[3].offset + 1})
    assert [r.value for r in take(later, 2)] == [b"4", b"5"]
    later.close()


def test_a_position_beyond_the_end_is_refused(log: Log) -> None:
    log.append(b"0")
    source = log.source()
    with pytest.raises(InvalidPositionError):
        source.start({(log.topic, 0): 1000})
    source.close()


def test_a_poll_is_bounded_in_records(log: Log) -> None:
    for n in range(12):
        log.append(b"%d" % n)
    source = log.source()
    source.start({})
    while not (found := source.poll(0.0)):
        pass
    assert len(found) <= 4
    assert len(found) + len(take(source, 12 - len(found))) == 12
    source.close()


def test_a_history_ends_where_it_is_told_to_also_where_no_record_is(log: Log) -> None:
    for n in range(10):
        log.append(b"%d" % n)
        log.gap()
    whole = log.source()
    whole.start({})
    offsets = [r.offset for r in take(whole, 10)]
    whole.close()
    for end, expected in ((offsets[6] + 1, 7), (offsets[6], 6), (offsets[9] + 2, 10), (0, 0)):
        history = log.history(end)
        history.start({})
        assert len(ended(history)) == expected
        assert history.finished
        history.close()
    later = log.history(offsets[8])
    later.start({(log.topic, 0): offsets[3]})
    assert [r.value for r in ended(later)] == [b"3", b"4", b"5", b"6", b"7"]
    later.close()


def ended(history: History) -> list[Record]:
    found: list[Record] = []
    until(lambda: found.extend(history.poll(0.05)) or history.finished, "its end", every_s=0)  # type: ignore[func-returns-value]
    return found
