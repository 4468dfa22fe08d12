"""A consumer of librdkafka that no batch stops.

A batch that librdkafka cannot unpack (zstd to more than `receive.message.max.bytes`; what is damaged) it reports at the same offset again
and again, and goes no further there: one batch of somebody who may write to one topic would stop for ever whoever reads it.

The same consumer is opened anew where librdkafka has lost all brokers for good (outage.py).

Holds: such a batch is asked for by the other client (one_batch.py), which unpacks no more than a bound: its records are given, or where it
is beyond the bound one record at its last offset, which says so and which nobody can read. What is given depends on the batch alone, so
a reader that comes again is given the same. Opened anew, it reads on behind the last record that it gave.
Never: passes over a batch that it has not seen; goes on where the brokers do not give it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from trainhouse.events.bus.one_batch import Batch, batch_at
from trainhouse.events.bus.outage import Watch
from trainhouse.events.model.errors import BusUnavailableError

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

log = structlog.get_logger(__name__)
DEFAULT_FETCH_WAIT_MS = 500  # librdkafka's
Ask = Callable[[str, int, int], Batch | None]


class PassingConsumer(Consumer):
    """As confluent_kafka's, with partitions that were assigned by `assign`. `reopened`: how often it lost all brokers for good.

    `min_timeout_s`: the setting, for those who ask the brokers by this client.
    """

    def __init__(self, config: dict[str, Any], settings: KafkaSettings) -> None:
        self._watch = Watch(settings, fetch_wait_s=config.get("fetch.wait.max.ms", DEFAULT_FETCH_WAIT_MS) / 1000)
        self._config = config | {"error_cb": self._watch.on_error}
        super().__init__(self._config)
        self._ask: Ask = lambda topic, partition, offset: batch_at(settings, topic, partition, offset)
        self._waiting: deque[Message] = deque()
        self._starts: dict[tuple[str, int], int] = {}
        self._paused: list[TopicPartition] = []
        self.reopened = 0
        self.min_timeout_s = settings.min_timeout_s

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As before; more than `num_messages` where a batch was read by the other client."""
        if self._waiting:
            return self._take(len(self._waiting))
        found = super().consume(num_messages, timeout)
        self._look(bool(found))
        return passed(found, self._ask, self.seek)

    def poll(self, timeout: float = -1) -> Message | None:
        """As before."""
        if not self._waiting:
            message = super().poll(timeout)
            self._look(message is not None)
            if message is None or not _is_stuck(message):
                return message
            self._waiting.extend(passed([message], self._ask, self.seek))
        return next(iter(self._take(1)), None)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """As before."""
        self._waiting.clear()
        self._paused = []
        self._starts = {(at.topic, at.partition): at.offset for at in partitions}
        super().assign(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """As before, forwards alone."""
        super().seek(partition)
        self._starts[(partition.topic, partition.partition)] = partition.offset

    def pause(self, partitions: list[TopicPartition]) -> None:
        """As before, until the next `assign`."""
        super().pause(partitions)
        self._paused += partitions

    def revive(self, topic: str) -> None:
        """Opens it anew where it is cut off from brokers that answer others; asks them about the topic, unless something came of late."""
        if self._watch.due() and self._watch.lost(self, topic):
            self._reopen()

    def _look(self, came: bool) -> None:
        if came:
            self._watch.on_message()
        elif self._starts:
            self.revive(next(iter(self._starts))[0])

    def _reopen(self) -> None:
        given = self.position([TopicPartition(*place) for place in self._starts])
        # A partition of which nothing was given has no position: less than any offset.
        starts = [TopicPartition(at.topic, at.partition, max(at.offset, self._starts[(at.topic, at.partition)])) for at in given]
        self.close()
        super().__init__(self._config)
        paused = self._paused
        self.assign(starts)
        if paused:
            self.pause(paused)
        self.reopened += 1
        log.warning(
            "a reader lost all brokers for good, though they answer; it was opened anew where it was",
            topics=sorted({at.topic for at in starts}),
            partitions=len(starts),
            reopened=self.reopened,
        )

    def _take(self, count: int) -> list[Message]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]


def passed(messages: Sequence[Message], ask: Ask, seek: Callable[[TopicPartition], None]) -> list[Message]:
    """The messages; in the place of each report of a batch that could not be unpacked its records, behind which is read on."""
    if not any(map(_is_stuck, messages)):
        return list(messages)
    found: list[Message] = []
    behind: set[tuple[str, int]] = set()
    for message in messages:
        place = (message.topic() or "", message.partition() or 0)
        if place in behind:
            continue  # the same report again: what comes from there on comes after the seek
        if not _is_stuck(message):
            found.append(message)
            continue
        given = _passed_one(message, *place, ask, seek)
        if given is None:
            found.append(message)
        else:
            behind.add(place)
            found += given
    return found


def _passed_one(message: Message, topic: str, partition: int, ask: Ask, seek: Callable[[TopicPartition], None]) -> list[Message] | None:
    """The records of the batch that this report is about; None where it is not known: the report comes again."""
    offset = message.offset() or 0
    try:
        batch = ask(topic, partition, offset)
        if batch is None or batch.end <= offset:
            return None
        seek(TopicPartition(topic, partition, batch.end))
    except (BusUnavailableError, KafkaException) as error:
        log.warning(
            "a batch that cannot be unpacked is not passed yet; it is tried again", topic=topic, partition=partition, error=str(error)
        )
        return None
    if not batch.readable:
        log.error(
            "a batch that cannot be unpacked, or to too much, is set aside; it is read on behind it",
            topic=topic,
            partition=partition,
            first_offset=batch.first,
            last_offset=batch.end - 1,
            packed_bytes=batch.packed_bytes,
        )
    return [_message(topic, partition, record) for record in batch.records]


def _message(topic: str, partition: int, record: Any) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp=(record.timestamp_kind + 1, record.timestamp_ms),  # librdkafka counts from 1 on
    )


def _is_stuck(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._BAD_COMPRESSION
