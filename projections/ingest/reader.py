"""Reads a lane's topics: all partitions, from given offsets, committed records only, in bounded batches.

Holds: a batch is a contiguous range of each partition that it touches; a range that was read once can be read again. What is archived is
read from the archive where the topic no longer has it.
Never: commits offsets to Kafka, or skips a record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from trainhouse.events.archive.log import NO_GAPS
from trainhouse.events.archive.partition import ArchiveStore
from trainhouse.events.archive.reading import ARCHIVED
from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, next_records, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.errors import InvalidPositionError
from trainhouse.projections.ingest.archive_source import OldRecords
from trainhouse.projections.messages import good_messages
from trainhouse.projections.record import Record
from trainhouse.projections.store.positions import Range

PROJECTOR_GROUP = "trainhouse-projector"
PREFETCH_KIB = 16 * 1024
CHUNK = 1000
REFRESH_ENDS_S = 2.0
# Until a lane is asked whether it is to end, or to write what is due; after a poll in vain nothing is due.
IDLE_S, QUIET_S = 0.2, 1.0
RANGE_TIMEOUT_S = 120.0
ANSWER_S = 30.0
# While the brokers are away: ask once or twice a second, not twenty times.
PATIENCE = {"reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 2000}
# A fetch ends with the first record; where none comes the brokers keep it open this long, since each costs them and us about 1 ms of CPU.
FETCH_WAIT_MS = 2000


class Source(Protocol):
    """Source of a lane's records."""

    def start(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        """Reads on from these offsets; from the beginning where none is given. Blocks on the brokers."""

    def poll(self, linger_s: float) -> list[Record]:
        """The next records; empty when none came for a while. Blocks up to `linger_s` after the first."""

    def read(self, ranges: Iterable[Range]) -> list[Record]:
        """Returns the current content of the ranges. Blocks on the brokers."""

    def close(self) -> None:
        """Leaves."""


class KafkaSource:
    """The brokers as a source, and the archive for what they no longer have."""

    def __init__(
        self, settings: KafkaSettings, topics: Sequence[str], max_records: int, max_bytes: int, archive: ArchiveStore | None = None
    ) -> None:
        self._settings = settings
        self.topics = topics
        self._archive = archive
        self._old = OldRecords(settings, archive)
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._consumer = self._new_consumer()
        self._assigned: list[TopicPartition] = []
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._refreshed_s = 0.0
        self._idle_s = IDLE_S

    def start(self, next_offsets: Mapping[tuple[str, int], int]) -> None:
        assigned = []
        for topic in self.topics:
            for partition in self.partitions(topic):
                offset = next_offsets.get((topic, partition), 0)
                low, high = self.ends(topic, partition)
                if offset > high:
                    raise InvalidPositionError(
                        f"{topic}-{partition} ends at {high}, but rows up to {offset} are stored: the topic was made anew, or this is "
                        "another cluster; give the projector an empty data folder to rebuild its tables from the topics"
                    )
                assigned.append(TopicPartition(topic, partition, self._old.begin(self._consumer, topic, partition, offset, low)))
        self._consumer.assign(assigned)
        self._assigned = assigned

    def poll(self, linger_s: float) -> list[Record]:
        self._refresh_ends()
        if old := self._old.take(self._max_records, self._max_bytes):
            return old
        chunk = min(CHUNK, self._max_records)
        messages = good_messages(next_records(self._consumer, chunk, self._idle_s))
        self._idle_s = IDLE_S if messages else QUIET_S
        if not messages:
            return []
        deadline = time.monotonic() + linger_s
        look_s = max(0.02, linger_s / 10)  # how often the size is looked at where records are few
        size = sum(len(m.value() or b"") for m in messages)
        while len(messages) < self._max_records and size < self._max_bytes:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            more = good_messages(self._consumer.consume(min(chunk, self._max_records - len(messages)), timeout=min(left, look_s)))
            size += sum(len(m.value() or b"") for m in more)
            messages += more
        return [record_of(m) for m in messages]

    def read(self, ranges: Iterable[Range]) -> list[Record]:
        found: list[Record] = []
        for wanted in sorted(ranges):
            found += self._read_range(wanted)
        return found

    def close(self) -> None:
        self._consumer.close()

    def lag_records(self, next_offsets: Mapping[tuple[str, int], int]) -> int:
        """Returns the distance of the topics' ends, as last seen, from these offsets. From any thread; sends no request."""
        return sum(max(0, high - max(low, next_offsets.get(place, 0))) for place, (low, high) in list(self._ends.items()))

    def _refresh_ends(self) -> None:
        """Notes what the brokers said of the ends with the last records. In the reading thread alone: others would wait for it for ever."""
        now_s = time.monotonic()
        if now_s - self._refreshed_s < REFRESH_ENDS_S:
            return
        self._refreshed_s = now_s
        for at in self._assigned:
            low, high = self._consumer.get_watermark_offsets(at, cached=True)
            if high >= 0:
                self._ends[(at.topic, at.partition)] = (low, high)

    def _read_range(self, wanted: Range) -> list[Record]:
        reader = self._new_consumer(**TO_END)
        deadline = time.monotonic() + RANGE_TIMEOUT_S
        try:
            old = OldRecords(self._settings, self._archive)
            low, _ = self.ends(wanted.topic, wanted.partition)
            start = old.begin(reader, wanted.topic, wanted.partition, wanted.start, low, wanted.end)
            found = old.take(sys.maxsize, sys.maxsize)
            if start >= wanted.end:
                return found
            reader.assign([TopicPartition(wanted.topic, wanted.partition, start)])
            while time.monotonic() < deadline:
                for message in next_records(reader, CHUNK, 0.5):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return found
                    if not good_messages([message]):
                        continue  # it passes; what came so far is not the whole range
                    if (message.offset() or 0) >= wanted.end:
                        return found
                    found.append(record_of(message))
                    if found[-1].offset == wanted.end - 1:
                        return found
        finally:
            reader.close()
        raise BusUnavailableError(
            f"{wanted.topic}-{wanted.partition}: offsets {wanted.start} to {wanted.end} did not come in {RANGE_TIMEOUT_S:.0f} s"
        )

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition and the one after its last. Blocks on the brokers."""
        return watermarks(self._consumer, topic, partition, ANSWER_S)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Blocks on the brokers."""
        return partitions_of(self._consumer, topic, ANSWER_S)

    def _new_consumer(self, **more: object) -> Consumer:
        # A journal has no gap that may be read over; what expires goes on with what is left.
        strict = NO_GAPS if set(self.topics) <= set(ARCHIVED) else {}
        return projector_consumer(
            self._settings, **({"queued.max.messages.kbytes": PREFETCH_KIB, "fetch.wait.max.ms": FETCH_WAIT_MS} | PATIENCE | strict | more)
        )


def projector_consumer(settings: KafkaSettings, **more: object) -> Consumer:
    """A consumer of the group that the projector's account on the brokers may name."""
    return consumer(settings, group=PROJECTOR_GROUP, **more)


def record_of(message: Message) -> Record:
    """A message without error as a record."""
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(headers_of(message)),
    )
