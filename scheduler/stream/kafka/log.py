"""The log port over a real Kafka, by aiokafka.

Holds: appends are idempotent and acked by all replicas; a producer that failed once is replaced, since what it sent is unknown.
Never: creates topics; commits group offsets.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError, RecordListTooLargeError

from trainhouse.events.bus.admin import topic_id
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError, RecordTooLarge
from trainhouse.scheduler.stream.cancellation import apart
from trainhouse.scheduler.stream.interfaces import Appended, Entry, Tail
from trainhouse.scheduler.stream.kafka.auth import aiokafka_config
from trainhouse.scheduler.stream.kafka.publisher import KafkaPublisher, know_partition, open_publisher

MAX_REQUEST_BYTES = 9 * 1024 * 1024
# A fetch ends with the first record; this long it stays open where none comes. Each costs broker and client about 1 ms of CPU.
FETCH_WAIT_MS = 5_000
# Journals are kept for years: a record takes a tenth of its bytes (`bench journal_day`).
COMPRESSION = "zstd"
SEND_TIMEOUT_MS = 10_000
ANSWER_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 1.0


class KafkaTail:
    """Reads assigned partitions from explicit offsets on."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    async def take(self, max_wait_s: float) -> list[Entry]:
        """Returns entries at once, or none after `max_wait_s`. Raises BrokenInvariant and LogUnavailableError."""
        try:
            found = await self._consumer.getmany(timeout_ms=max(1, int(max_wait_s * 1000)))
        except OffsetOutOfRangeError as error:
            raise BrokenInvariant(f"the log no longer holds (or does not yet hold) what is to be read: {error}; restore it") from error
        except KafkaError as error:
            raise LogUnavailableError(f"reading failed: {error!r}") from error
        return [Entry.of(record) for records in found.values() for record in records]

    async def position(self, partition: int) -> int:
        """Returns the offset of the next read."""
        return int(await self._consumer.position(TopicPartition(self._topic, partition)))

    async def close(self) -> None:
        """Gives the connections back; does not wait long for a client that cannot end itself."""
        with contextlib.suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(apart(self._consumer.stop()), CLOSE_TIMEOUT_S)


class KafkaLog:
    """The brokers, as the journal's shell needs them. One producer for appends, made when it is first needed."""

    def __init__(self, settings: KafkaSettings, signing: SigningKey | None = None) -> None:
        self._settings = settings
        self._signing = signing
        self._config = aiokafka_config(settings)
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._asking: AIOKafkaConsumer | None = None

    async def append(self, topic: str, partition: int, value: bytes) -> Appended:
        """One journal entry."""
        return await self._send(topic, value=value, partition=partition)

    async def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        """One keyed record."""
        await self._send(topic, value=value, key=key)

    async def open_tail(self, topic: str, positions: Mapping[int, int]) -> Tail:
        """A consumer of its own with these positions."""
        consumer = self._consumer()
        try:
            await consumer.start()
            consumer.assign([TopicPartition(topic, p) for p in positions])
            for partition, offset in positions.items():
                consumer.seek(TopicPartition(topic, partition), offset)
        except KafkaError as error:
            await consumer.stop()
            raise self._away(error) from error
        except BaseException:
            await consumer.stop()
            raise
        return KafkaTail(consumer, topic)

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First and next offset."""
        tp = TopicPartition(topic, partition)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                asking = await self._asking_consumer()
                ends = await asking.end_offsets([tp])
                starts = await asking.beginning_offsets([tp])
        except (KafkaError, TimeoutError) as error:
            raise self._away(error) from error
        return starts[tp], ends[tp]

    async def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """The next offset of each."""
        if not partitions:
            return {}
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                asking = await self._asking_consumer()
                found = await asking.end_offsets([TopicPartition(topic, p) for p in partitions])
        except (KafkaError, TimeoutError) as error:
            raise self._away(error) from error
        return {tp.partition: end for tp, end in found.items()}

    async def partitions(self, topic: str) -> list[int]:
        """The topic's partition numbers."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                # Asked anew: what a client keeps may be minutes old, and partitions are added to some topics.
                listed = await (await self._asking_consumer())._client.fetch_all_metadata()
                found = listed.partitions_for_topic(topic)
        except (KafkaError, TimeoutError) as error:
            raise self._away(error) from error
        if not found:
            raise LogUnavailableError(f"the topic {topic} does not exist on {self._settings.bootstrap}; create the topics first")
        return sorted(found)

    async def existing(self, topics: Collection[str]) -> set[str]:
        """From the brokers' list; what this client may not see is not in it."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                listed = await (await self._asking_consumer())._client.fetch_all_metadata()
        except (KafkaError, TimeoutError) as error:
            raise self._away(error) from error
        return set(topics) & set(listed.topics())

    async def topic_id(self, topic: str) -> str:
        """Kafka's topic id."""
        try:
            return await asyncio.to_thread(topic_id, self._settings, topic, ANSWER_TIMEOUT_S)
        except BusUnavailableError as error:
            raise self._away(error) from error

    async def open_publisher(self, transactional_id: str | None, marks: str = "") -> KafkaPublisher:
        """A producer of its own; with an id it fences every earlier one."""
        return await open_publisher(self._settings, transactional_id, marks, self._signing)

    async def newest(self, topic: str, prefix: bytes) -> dict[bytes, bytes]:
        """Reads a small compacted topic from its beginning to its end."""
        found = {e.key: e.value for e in await self._entries(topic) if e.key is not None and e.key.startswith(prefix)}
        return {key: value for key, value in found.items() if value is not None}

    async def whole(self, topic: str) -> list[bytes | None]:
        """Reads a small topic from its beginning to its end."""
        return [e.value for e in await self._entries(topic)] if await self.existing([topic]) else []

    async def _entries(self, topic: str) -> list[Entry]:
        found: list[Entry] = []
        for partition in await self.partitions(topic):
            start, end = await self.bounds(topic, partition)
            if start >= end:
                continue
            tail = await self.open_tail(topic, {partition: start})
            try:
                # The end of a transaction is an entry too, which no reader is given.
                while await tail.position(partition) < end:
                    found.extend(await tail.take(ANSWER_TIMEOUT_S))
            finally:
                await tail.close()
        return found

    async def close(self) -> None:
        """Gives all connections back."""
        await self._drop_producer()
        if self._asking is not None:
            await self._asking.stop()
            self._asking = None

    async def _send(self, topic: str, **record: Any) -> Appended:
        producer = await self._started_producer()
        try:
            await know_partition(producer, topic, record.get("partition"))
            sent = await producer.send_and_wait(topic, **record)
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise RecordTooLarge(f"{topic}: {error}") from error
        except KafkaError as error:
            if producer is self._producer:
                await self._drop_producer()
            raise self._away(error) from error
        return Appended(sent.offset, sent.timestamp)

    async def _started_producer(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._config,
                    enable_idempotence=True,
                    compression_type=COMPRESSION,
                    linger_ms=0,
                    max_request_size=MAX_REQUEST_BYTES,
                    max_batch_size=MAX_REQUEST_BYTES,
                    request_timeout_ms=SEND_TIMEOUT_MS,
                )
                try:
                    await producer.start()
                except KafkaError as error:
                    await producer.stop()
                    raise self._away(error) from error
                self._producer = producer
            return self._producer

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(apart(producer.stop()), CLOSE_TIMEOUT_S)

    async def _asking_consumer(self) -> AIOKafkaConsumer:
        async with self._starting:
            if self._asking is None:
                consumer = self._consumer()
                try:
                    await consumer.start()
                except BaseException:
                    await consumer.stop()
                    raise
                self._asking = consumer
            return self._asking

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._config,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_partition_fetch_bytes=MAX_REQUEST_BYTES,
            request_timeout_ms=SEND_TIMEOUT_MS,
        )

    def _away(self, error: BaseException) -> LogUnavailableError:
        return LogUnavailableError(f"the brokers at {self._settings.bootstrap} did not do it: {error!r}; are they up?")
