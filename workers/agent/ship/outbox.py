"""The way out to the brokers: every record is kept until it is acked, and sent again for as long as that takes.

Holds: memory is bounded by `max_bytes` of telemetry; `offer` says no when it is full, and the files keep the rest. Reports are always
taken (they are few). Records of one topic leave in the order in which they were given.
Never: blocks, or drops a record that the brokers could take. One thread only.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trainhouse.events import Envelope, encode
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.topics import (
    CHECKPOINTS,
    CONTROL,
    ENVIRONMENTS,
    HEARTBEATS,
    LOGS,
    METRICS,
    NODE_AUDIT,
    OPERATION_REPLIES,
    PROGRESS,
    TOPICS,
)

RETRY_S = 1.0
# All that agents write: every agent may write to these topics, so a record counts by its signature.
SIGNED = frozenset({CONTROL, PROGRESS, HEARTBEATS, METRICS, LOGS, CHECKPOINTS, ENVIRONMENTS, OPERATION_REPLIES, NODE_AUDIT})
MAX_BYTES = 24 * 1024 * 1024
# What no repetition makes acceptable: the record is dropped, loudly.
HOPELESS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
# What a batch adds to the one record in it: its header, the record's key, headers and signature.
AROUND_BYTES = 2 * 1024
MOST_BYTES = {topic.name: topic.max_message_bytes - AROUND_BYTES for topic in TOPICS}
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pending:
    number: int
    topic: str
    key: bytes
    partition: int
    value: bytes
    on_ack: Callable[[], None] | None
    attempts: int = 0


class Outbox:
    """Sends over a producer that `make_producer` gives; makes a new one when librdkafka declares the old one broken for good, or when
    `watch` finds it cut off from the brokers for good."""

    def __init__(
        self,
        make_producer: Callable[[], Producer],
        max_bytes: int = MAX_BYTES,
        signing: SigningKey | None = None,
        watch: ProducerWatch | None = None,
    ) -> None:
        self._watch = watch
        self._signing = signing
        self._make = make_producer
        self._producer = make_producer()
        self._max_bytes = max_bytes
        self._pending: dict[int, _Pending] = {}
        self._again: list[int] = []
        self._again_at = 0.0
        self._generation = 0
        self._broken = False
        self._numbers = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def taken(self) -> int:
        """Number of records taken so far."""
        return self._numbers

    def room(self) -> bool:
        """Returns whether telemetry may be offered."""
        return self.bytes < self._max_bytes

    def holds(self, topic: str) -> bool:
        """Returns whether a record of the topic is not acked yet. Looks at every record that is not: for rare moments."""
        return any(record.topic == topic for record in self._pending.values())

    def offer(self, topic: str, envelope: Envelope, *, key: str, partition: int = -1, on_ack: Callable[[], None] | None = None) -> None:
        """Takes one record for sending. Ask `room` first for anything but reports. `on_ack` is called within `poll`."""
        self._numbers += 1
        record = _Pending(self._numbers, topic, key.encode(), partition, encode(envelope), on_ack)
        self._pending[record.number] = record
        self.bytes += len(record.value)
        if self._again:
            self._again.append(record.number)  # behind what waits already: order is kept
        else:
            self._produce(record)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Runs what is due: acks and repeated sends. Waits up to `timeout_s` for the first ack."""
        self._producer.poll(timeout_s)
        if self._broken or (self._watch is not None and self._watch.cut_off(self._producer, CONTROL)):
            self._replace()
        if self._again and time.monotonic() >= self._again_at:
            again, self._again = self._again, []
            for at, number in enumerate(again):
                record = self._pending.get(number)
                if record is not None:
                    self._produce(record)
                if self._again:  # the queue is full again: the rest keeps its order behind
                    self._again += again[at + 1 :]
                    break

    def flush(self, timeout_s: float) -> bool:
        """Waits until all is acked; False when time ran out first."""
        deadline = time.monotonic() + timeout_s
        while self._pending and time.monotonic() < deadline:
            self.poll(0.05)
        return not self._pending

    def _produce(self, record: _Pending) -> None:
        generation = self._generation
        record.attempts += 1

        def done(error: KafkaError | None, _: Message) -> None:
            if generation == self._generation:
                self._done(record, error)

        to: dict[str, Any] = {} if record.partition < 0 else {"partition": record.partition}
        try:
            self._producer.produce(record.topic, value=record.value, key=record.key, headers=self._headers(record), on_delivery=done, **to)
        except BufferError:
            self._retry(record)
        except KafkaException as error:
            self._done(record, error.args[0])

    def _headers(self, record: _Pending) -> list[tuple[str, str | bytes | None]]:
        signed = [self._signing.header(record.topic, record.value)] if self._signing is not None and record.topic in SIGNED else []
        return [*HEADERS, *signed]

    def _done(self, record: _Pending, error: KafkaError | None) -> None:
        if error is not None and error.fatal():
            self._broken = True
            return
        if error is not None and not _hopeless(record, error):
            log.warning("a record was not taken; sending it again", topic=record.topic, error=error.str(), attempts=record.attempts)
            self._retry(record)
            return
        if error is not None:
            log.error("a record can never be taken; dropping it", topic=record.topic, error=error.str(), size_bytes=len(record.value))
        self._pending.pop(record.number, None)
        self.bytes -= len(record.value)
        if record.on_ack is not None:
            record.on_ack()

    def _retry(self, record: _Pending) -> None:
        self._again.append(record.number)
        self._again.sort()
        self._again_at = time.monotonic() + RETRY_S

    def _replace(self) -> None:
        """A fatal producer (it lost its sequence), or one without brokers, takes nothing more: begin again with a new one, and everything
        unacked in order."""
        log.warning("the producer is broken, or cut off from the brokers, for good; starting a new one", unacked=len(self._pending))
        self._generation += 1
        self._broken = False
        self._producer.purge()
        self._producer = self._make()
        self._again = sorted(self._pending)
        self._again_at = 0.0


def _hopeless(record: _Pending, error: KafkaError) -> bool:
    """True if the record is never taken: one that its topic has room for was in a batch with another that did not fit or was not valid, or
    its topic is set wrong by now."""
    return error.code() in HOPELESS and len(record.value) > MOST_BYTES.get(record.topic, 0)
