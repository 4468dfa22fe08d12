"""The fleet's two ends at the brokers: one reader for all nodes, and the pool that they belong to.

Holds: it reads from the ends as of its start, committed records only; what came before is in the answers to the registrations. Where the
pool moves to another partition, all commands of the one before come before the pool's record, and any of the new one after it.
Never: ends because the brokers are away; a reader that can never go on raises.
"""

import time
import uuid
from collections.abc import Callable

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from trainhouse.events import Event, InvalidEvent, Order, PoolCreated, decode, envelope_of
from trainhouse.events.bus.kafka import TO_END, EventProducer, at_least_s, consumer, headers_of, next_records, read_to_end, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, JOBS, OPERATIONS, POOLS, VERDICTS

BATCH = 500
METADATA_TIMEOUT_S = 10.0
POOL_TIMEOUT_S = 60.0
SAY_AGAIN_S = 10.0
SOURCE = "trainhouse/fleet"
log = structlog.get_logger(__name__)

Received = tuple[Event, Order | None]


class Commands:
    """Reader of commands to the pool's nodes, verdicts on them, operations, and the pool's partition."""

    def __init__(self, settings: KafkaSettings, pool: str) -> None:
        self._settings = settings
        self._pool = pool
        self._reader = consumer(settings, group="trainhouse-fleet", log_level=2)
        self._next = {(topic, n): self._end(topic, n) for topic in (POOLS, VERDICTS, OPERATIONS) for n in _partitions(self._reader, topic)}
        asking = consumer(settings, group="trainhouse-fleet", log_level=2, **TO_END)
        try:
            self.partition = _pools(asking)[pool]
        finally:
            asking.close()
        self._to = self.partition
        self._next[ALLOCATIONS, self.partition] = self._end(ALLOCATIONS, self.partition)
        self._read_on()
        self._logged_s = float("-inf")

    def take(self, timeout_s: float) -> list[Received]:
        """Returns new records; waits up to `timeout_s` for the first."""
        if self._to != self.partition:
            return self._moved()
        found = []
        for message in next_records(self._reader, BATCH, timeout_s):
            received = self._read(message)
            if received is not None and isinstance(received[0], PoolCreated):
                self._to = received[0].partition if received[0].pool == self._pool else self._to
            elif received is not None:
                found.append(received)
        return found

    def _moved(self) -> list[Received]:
        """The rest of the commands of the partition before, and then where the pool is now; nothing while the brokers are away."""
        catching = consumer(self._settings, group="trainhouse-fleet", log_level=2, **TO_END)
        try:
            starts = {self.partition: self._next[ALLOCATIONS, self.partition]}
            end = self._end(ALLOCATIONS, self._to)
            messages = list(read_to_end(catching, ALLOCATIONS, [self.partition], METADATA_TIMEOUT_S, starts))
        except BusUnavailableError as error:
            self._say(str(error))
            return []
        finally:
            catching.close()
        found = [received for message in messages if (received := self._read(message)) is not None]
        del self._next[ALLOCATIONS, self.partition]
        self.partition = self._to
        self._next[ALLOCATIONS, self.partition] = end
        self._read_on()
        return [*found, (PoolCreated.model_validate({"pool": self._pool, "partition": self.partition}), None)]

    def _end(self, topic: str, partition: int) -> int:
        return watermarks(self._reader, topic, partition, METADATA_TIMEOUT_S)[1]

    def _read_on(self) -> None:
        self._reader.assign([TopicPartition(topic, number, offset) for (topic, number), offset in self._next.items()])

    def close(self) -> None:
        self._reader.close()

    def _read(self, message: Message) -> Received | None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            self._say(error.str())
            return None
        self._next[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
        try:
            envelope = decode(message.value(), headers_of(message))
        except InvalidEvent as invalid:
            log.warning(
                "a record cannot be read; passing over it", topic=message.topic(), offset=message.offset(), reason=str(invalid)[:500]
            )
            return None
        return envelope.event, envelope.order

    def _say(self, error: str) -> None:
        if time.monotonic() - self._logged_s >= SAY_AGAIN_S:
            self._logged_s = time.monotonic()
            log.warning("reading commands", error=error)


def pool_partition(settings: KafkaSettings, pool: str, say: Callable[[str], None]) -> int:
    """The partition of a pool, which is created where there is none of that name. Blocks; raises BusUnavailableError."""
    reader = consumer(settings, group="trainhouse-fleet", log_level=2, **TO_END)
    try:
        known = _pools(reader)
        if pool in known:
            return known[pool]
        taken = list(known.values())
        # The partition with the fewest pools, the lowest of them: partitions decide side by side.
        partition = min(_partitions(reader, CONTROL), key=lambda number: (taken.count(number), number))
        say(f"creating the pool {pool!r} on partition {partition}")
        producer = EventProducer(settings)
        event = PoolCreated.model_validate({"pool": pool, "partition": partition})
        envelope = envelope_of(event, id=f"fleet-{uuid.uuid4().hex}", source=SOURCE, now_ms=time.time_ns() // 1_000_000)
        producer.send(JOBS, envelope)
        producer.flush()
        patient_s = max(POOL_TIMEOUT_S, settings.min_timeout_s)
        deadline = time.monotonic() + patient_s
        while pool not in (known := _pools(reader)):
            if time.monotonic() > deadline:
                raise BusUnavailableError(f"the pool {pool!r} is not on {POOLS} after {patient_s:.0f} s; does intake run?")
            time.sleep(0.1)
        return known[pool]
    except BusUnavailableError as error:
        raise BusUnavailableError(f"the brokers at {settings.bootstrap}: {error}; is the stack up?") from error
    finally:
        reader.close()


def _pools(reader: Consumer) -> dict[str, int]:
    found: dict[str, int] = {}
    for message in read_to_end(reader, POOLS, [0]):
        event = decode(message.value(), headers_of(message)).event
        if isinstance(event, PoolCreated):
            found[str(event.pool)] = event.partition
    return found


def _partitions(reader: Consumer, topic: str) -> list[int]:
    try:
        return sorted(reader.list_topics(topic, timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics[topic].partitions)
    except KafkaException as error:
        raise BusUnavailableError(f"{topic}: the brokers do not answer: {error.args[0].str()}") from error
