"""Our own producer and consumers over librdkafka, for everything that is not a stream processor.

Holds: a producer is idempotent, waits for all replicas and uses Java's partitioner; a consumer commits nothing by itself.
Never: creates topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.bus.passing_consumer import PassingConsumer
from trainhouse.events.model.errors import BusUnavailableError, RecordsGoneError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.topics import MOST_UNPACKED_BYTES

if TYPE_CHECKING:
    from trainhouse.events.security.signing import SigningKey

log = structlog.get_logger(__name__)
MAX_BUFFERED_KIB = 64 * 1024
_RETRY_S = 0.1
# Brokers say that a partition ends here with an answer that has no record, which they put off for this long. Who follows a topic wants
# the opposite: one question that stays open until there is something, since each costs broker and client work though nothing happens.
TO_END: dict[str, Any] = {"enable.partition.eof": True, "fetch.wait.max.ms": 20}


def producer_config(settings: KafkaSettings, **more: Any) -> dict[str, Any]:
    """librdkafka configuration of every producer of ours."""
    return (
        settings.client_config()
        | {
            "partitioner": "murmur2_random",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "compression.type": "lz4",
            "queue.buffering.max.kbytes": MAX_BUFFERED_KIB,
            "message.max.bytes": 8 * 1024 * 1024,
        }
        | more
    )


# Of a producer that sends a few events and ends. An idempotent one first asks for a producer id, and librdkafka looks for a broker to ask
# only each half second, so its first event takes that long. Every event has an id: one that a retry wrote twice counts once.
ONE_SHOT: dict[str, Any] = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}


class EventProducer:
    """Sends envelopes, signed where `signing` is set. `send` does not block while the buffer has room; `flush` waits for all acks."""

    def __init__(self, settings: KafkaSettings, **config: Any) -> None:
        self.signing: SigningKey | None = None
        self._bootstrap = settings.bootstrap
        self._min_timeout_s = settings.min_timeout_s
        self._watch = ProducerWatch(settings)
        self._config = producer_config(settings, **config) | {"error_cb": self._watch.on_error}
        self._producer = Producer(self._config)
        self._failed: str | None = None

    def send(
        self,
        topic: str,
        envelope: Envelope,
        *,
        key: str | None = None,
        partition: int = -1,
        on_ack: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Queues one event, keyed by its subject unless `key` is given. Raises BufferError when the buffer is full."""
        value = encode(envelope)
        signed = () if self.signing is None else (self.signing.header(topic, value),)
        if self._watch.cut_off(self._producer, topic):
            self._renew()
        self._producer.produce(
            topic,
            value=value,
            key=(key if key is not None else envelope.subject).encode(),
            partition=partition,
            headers=[*HEADERS, *signed],
            on_delivery=on_ack or self._remember_failure,
        )
        self._producer.poll(0)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Runs ack callbacks that are due."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Waits until every event is acked. Raises BusUnavailableError when some are not, in time or at all."""
        timeout_s = max(timeout_s, self._min_timeout_s)
        left = self._producer.flush(timeout_s)
        if left:
            raise BusUnavailableError(f"{left} events are not acked by {self._bootstrap} after {timeout_s:.0f} s; are the brokers up?")
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise BusUnavailableError(f"an event was refused by {self._bootstrap}: {failed}")

    def _renew(self) -> None:
        """Goes on with a new one; what the old one has not sent, it says to have failed."""
        log.warning("a producer lost all brokers for good, though they answer; a new one is started", unacked=len(self._producer))
        old, self._producer = self._producer, Producer(self._config)
        old.purge()
        old.poll(0)

    def _remember_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = f"{message.topic()}: {error.str()}"


def consumer(settings: KafkaSettings, *, group: str = "trainhouse-reader", **more: Any) -> Consumer:
    """A consumer that reads committed records only and never commits offsets; use `assign` with explicit offsets. No batch stops it."""
    return PassingConsumer(
        settings.client_config()
        | {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            # What zstd unpacks to as well: alike for all readers.
            "receive.message.max.bytes": MOST_UNPACKED_BYTES,
        }
        | more,
        settings,
    )


# Not `message.headers()`: confluent_kafka returns a value and leaves its exception behind, and a call that the interpreter has made fast
# does not look for one, so that it would be raised at any later call. This way looks.
_HEADERS = methodcaller("headers")


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers; none where one of their names is no UTF-8: brokers take any bytes, confluent_kafka raises on them."""
    try:
        return list(_HEADERS(message) or ())
    except (SystemError, UnicodeDecodeError):
        message.set_headers([])  # what it has made of them by now would end the process when it is read again
        return []


def at_least_s(asking: Consumer | AdminClient, timeout_s: float) -> float:
    """The seconds to wait for an answer to this client: `timeout_s`, or its settings' `min_timeout_s` where that is more."""
    return max(timeout_s, asking.min_timeout_s) if isinstance(asking, PassingConsumer) else timeout_s


def partitions_of(asking: Consumer | AdminClient, topic: str, timeout_s: float = 30.0) -> list[int]:
    """The topic's partitions. Blocks; raises BusUnavailableError where there are none, or where no broker says so in `timeout_s`."""
    try:
        found = asking.list_topics(topic, timeout=at_least_s(asking, timeout_s)).topics[topic]
    except KafkaException as error:
        if isinstance(asking, PassingConsumer):
            asking.revive(topic)  # for the next time
        raise BusUnavailableError(f"the brokers did not say what partitions {topic} has: {error.args[0].str()}; are they up?") from error
    if found.error is not None or not found.partitions:
        raise BusUnavailableError(f"topic {topic} is not there ({found.error}); create the topics first (`trainhouse up` does)")
    return sorted(found.partitions)


# What is said of a partition whose leader is being chosen: by a broker just after the topic was made or after a start, and by the
# client itself (the last one) where a broker that was behind has listed the topic with fewer partitions. `_DESTROY_BROKER`: the client
# knows the brokers now, and has given up the connection to the address that it began from, with the request on it. `_TIMED_OUT`: one
# request was not answered within its own limit, which may be less than the time that there is.
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


def watermarks(reader: Consumer, topic: str, partition: int, timeout_s: float = 30.0) -> tuple[int, int]:
    """The first offset of a partition and the one after its last. Blocks; raises BusUnavailableError after `timeout_s`."""
    deadline = time.monotonic() + at_least_s(reader, timeout_s)
    while True:
        left_s = max(0.1, deadline - time.monotonic())
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=left_s)
            return int(low), int(high)
        except KafkaException as error:
            cause = error.args[0]
            if isinstance(reader, PassingConsumer):
                reader.revive(topic)
            if cause.code() not in _PASSING or time.monotonic() + _RETRY_S > deadline:
                raise BusUnavailableError(f"{topic}-{partition}: its ends are not known: {cause.str()}") from error
            time.sleep(_RETRY_S)
            if cause.code() == KafkaError._UNKNOWN_PARTITION:
                with suppress(KafkaException):  # of itself the client asks for the topic's partitions again only minutes later
                    reader.list_topics(topic, timeout=max(0.1, deadline - time.monotonic()))


# What is said of a group whose coordinator is being found, has just started, or waits for the end of a transaction.
_SOON = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
    }
)


def committed(settings: KafkaSettings, group: str, topic: str, partition: int, timeout_s: float = 15.0) -> int | None:
    """The offset that a group has committed; None: none yet. Blocks; raises BusUnavailableError after `timeout_s`."""
    deadline = time.monotonic() + max(timeout_s, settings.min_timeout_s)
    asking = consumer(settings, group=group, log_level=0)
    try:
        while True:
            error, offset = _ask_committed(asking, TopicPartition(topic, partition), max(0.1, deadline - time.monotonic()))
            if error is None:
                return offset
            if error.code() not in _SOON or time.monotonic() + _RETRY_S > deadline:
                raise BusUnavailableError(f"what {group} committed is not known: {error.str()}")
            time.sleep(_RETRY_S)
    finally:
        asking.close()


def _ask_committed(asking: Consumer, at: TopicPartition, timeout_s: float) -> tuple[KafkaError | None, int | None]:
    try:
        (found,) = asking.committed([at], timeout=timeout_s)
    except KafkaException as error:
        return error.args[0], None
    return found.error, int(found.offset) if found.offset >= 0 else None


def next_records(reader: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Returns what has come, at most about `most` messages, as soon as there is one; nothing after `timeout_s`. Blocks.

    `reader.consume` would wait the whole time, or until there are `most`.
    """
    first = reader.poll(timeout_s)
    return [] if first is None else [first, *reader.consume(most - 1, timeout=0.0)]


def read_to_end(
    reader: Consumer,
    topic: str,
    partitions: Iterable[int],
    timeout_s: float = 30.0,
    starts: Mapping[int, int] | None = None,
    *,
    whole: bool = False,
    reached: dict[int, int] | None = None,
) -> Iterable[Message]:
    """Yields what the partitions hold now, from their beginnings (or `starts`) to their ends as of the call. Blocks on the brokers.

    Make `reader` by `consumer(settings, **TO_END)`: where a partition ends with a transaction's marker, which is never delivered,
    only the brokers' notice tells that it was read. Raises BusUnavailableError after `timeout_s` of silence. `whole`: before anything is
    read,
    raises RecordsGoneError where a partition begins later than at its start (at 0 where none is given). `reached` is told the offset at
    which
    the reading of each partition ended: below its end as long as a transaction there is open.
    """
    timeout_s = at_least_s(reader, timeout_s)
    ends: dict[int, int] = {}
    assigned = []
    for partition in partitions:
        low, high = watermarks(reader, topic, partition, timeout_s)
        start = (starts or {}).get(partition, 0)
        if whole and low > start:
            raise RecordsGoneError(f"{topic}-{partition} begins at offset {low}; the records from {start} on are no longer there")
        low = max(low, start)
        if high > low:
            ends[partition] = high
            assigned.append(TopicPartition(topic, partition, low))
    reader.assign(assigned)
    last_message_s = time.monotonic()
    while ends:
        if time.monotonic() > last_message_s + timeout_s:
            raise BusUnavailableError(f"reading {topic}: nothing came for {timeout_s:.0f} s before the end of partition {min(ends)}")
        for message in next_records(reader, 1000, 0.2):
            last_message_s = time.monotonic()
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ends.pop(message.partition() or 0, None)
                if reached is not None:
                    reached[message.partition() or 0] = message.offset() or 0
                continue
            if error is not None:
                raise BusUnavailableError(f"reading {topic}: {error.str()}")
            yield message
            last_message_s = time.monotonic()  # what the caller did meanwhile was no silence of the brokers
        for tp in reader.position(assigned):
            if tp.partition in ends and tp.offset >= ends[tp.partition]:
                del ends[tp.partition]
