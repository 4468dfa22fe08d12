"""Reads topics from given offsets up to given ends, and is finished then: for tables that catch up, and for a rebuild.

Holds: nothing at or beyond an end is given; an end that no record has (transactions leave such offsets) is reached all the same.
Never: commits offsets to Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.bus.kafka import TO_END, next_records
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.ingest.reader import CHUNK, KafkaSource, Source, record_of
from trainhouse.projections.messages import good_messages
from trainhouse.projections.record import Record

Place = tuple[str, int]
WAIT_S = 1.0


class History(Source, Protocol):
    """A source that ends."""

    @property
    def finished(self) -> bool:
        """True if all up to the ends has been given."""


class KafkaHistory(KafkaSource):
    """The brokers as a source that ends. `ends` are offsets by topic and partition, as `ends_of` gives them."""

    def __init__(
        self, settings: KafkaSettings, ends: Mapping[Place, int], max_records: int, max_bytes: int, archive: ArchiveStore | None = None
    ) -> None:
        super().__init__(settings, sorted({topic for topic, _ in ends}), max_records, max_bytes, archive)
        self._until = dict(ends)
        self._open: set[Place] = set(ends)

    def start(self, next_offsets: Mapping[Place, int]) -> None:
        begins = {
            place: self._old.begin(self._consumer, *place, next_offsets.get(place, 0), self.ends(*place)[0], end)
            for place, end in self._until.items()
        }
        self._open = {place for place, end in self._until.items() if begins[place] < end}
        self._consumer.assign([TopicPartition(*place, begins[place]) for place in sorted(self._open)])

    def poll(self, linger_s: float) -> list[Record]:
        """The next records; empty when all is given, or when the brokers had nothing for a while (see `finished`)."""
        if old := self._old.take(self._max_records, self._max_bytes):
            return old
        found: list[Record] = []
        size = 0
        while self._open and len(found) < self._max_records and size < self._max_bytes:
            messages = next_records(self._consumer, min(CHUNK, self._max_records - len(found)), WAIT_S)
            for message in messages:
                record = self._within(message)
                if record is not None:
                    found.append(record)
                    size += len(record.value or b"")
            if not messages:
                break
        return found

    @property
    def finished(self) -> bool:
        return self._old.exhausted and not self._open

    def _within(self, message: Message) -> Record | None:
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._close(place)
            return None
        if error is not None:
            good_messages([message])
            return None
        record = record_of(message)
        end = self._until[place]
        if record.offset >= end - 1:
            self._close(place)
        return record if record.offset < end else None

    def _close(self, place: Place) -> None:
        if place in self._open:
            self._open.discard(place)
            self._consumer.pause([TopicPartition(*place)])

    def _new_consumer(self, **more: object) -> Consumer:
        return super()._new_consumer(**(TO_END | more))


def ends_of(source: KafkaSource) -> dict[Place, int]:
    """End offsets of a source's topics; partitions that never had a record are left out. Blocks on the brokers."""
    found = {}
    for topic in source.topics:
        for partition in source.partitions(topic):
            _, high = source.ends(topic, partition)
            if high > 0:
                found[(topic, partition)] = high
    return found
