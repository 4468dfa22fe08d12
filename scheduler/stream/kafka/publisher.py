"""A publisher of effects over a real Kafka.

Holds: with a transactional id, a batch and its mark are one transaction, and a publisher that was fenced can make nothing visible;
without one, records of a partition arrive in order. What is for control goes out before the transaction, each record after the one before
it was acked: readers of control count on offsets without a gap, and the ends of transactions would leave some. What is sent twice by
that, its reader recognises (`core/handover.py`). After an error it is of no use any more.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, InvalidProducerEpoch, KafkaError, ProducerFenced, UnknownTopicOrPartitionError
from aiokafka.producer import sender

from trainhouse.events.bus.kafka import committed
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import CONTROL, DATASETS
from trainhouse.scheduler.core.errors import FencedError, LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.cancellation import apart
from trainhouse.scheduler.stream.kafka.auth import aiokafka_config

MAX_REQUEST_BYTES = 5 * 1024 * 1024
SEND_TIMEOUT_MS = 10_000
TRANSACTION_TIMEOUT_MS = 15_000
CLOSE_TIMEOUT_S = 1.0
# Brokers that could not end an earlier transaction of an id say "come back" for ever, and aiokafka does.
START_TIMEOUT_S = 30.0
# A transaction that begins while the brokers still mark the one before it is asked to come back: soon, since they take milliseconds.
RETRY_BACKOFF_MS = 10
CONCURRENT_BACKOFF_S = 0.003
ANSWER_TIMEOUT_S = 15.0
# A mark is the committed offset of a group named as the transactional id; which partition it stands at is of no matter.
MARKS_PARTITION = 0


# aiokafka has no setting for it: it would wait 0.02 s, longer than all the rest of a transaction takes.
sender.BACKOFF_OVERRIDE = CONCURRENT_BACKOFF_S


async def open_publisher(
    settings: KafkaSettings, transactional_id: str | None, marks: str = "", signing: SigningKey | None = None
) -> "KafkaPublisher":
    """Starts a producer; with an id, waits until the brokers fenced every earlier one. Raises LogUnavailableError."""
    producer = _producer(settings, transactional_id)
    publisher = KafkaPublisher(producer, settings, transactional_id, marks, signing)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await producer.start()
            if transactional_id is not None:
                # The producer id comes with the first transaction; an empty one costs nothing more.
                await producer.begin_transaction()
                await producer.abort_transaction()
    except (KafkaError, TimeoutError) as error:
        await publisher.close()
        raise LogUnavailableError(f"the publisher {transactional_id or '(plain)'} could not start: {error!r}") from error
    except BaseException:
        await publisher.close()
        raise
    return publisher


def _producer(settings: KafkaSettings, transactional_id: str | None) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        **aiokafka_config(settings),
        enable_idempotence=True,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        compression_type="zstd",
        linger_ms=0,
        max_request_size=MAX_REQUEST_BYTES,
        request_timeout_ms=SEND_TIMEOUT_MS,
        retry_backoff_ms=RETRY_BACKOFF_MS,
    )


async def know_partition(producer: AIOKafkaProducer, topic: str, partition: int | None) -> None:
    """Asks the brokers anew about a partition that was added since the producer asked last: by itself it would fail for minutes.

    Raises KafkaError where there is none.
    """
    if partition is None or partition in (await producer.partitions_for(topic)):
        return
    await producer.client.force_metadata_update()
    if partition not in await producer.partitions_for(topic):
        raise UnknownTopicOrPartitionError(f"there is no partition {partition} of {topic}")


class KafkaPublisher:
    """Sends batches in order."""

    def __init__(
        self,
        producer: AIOKafkaProducer,
        settings: KafkaSettings,
        transactional_id: str | None,
        marks: str,
        signing: SigningKey | None = None,
    ) -> None:
        self._signing = signing
        self._producer = producer
        self._plain: AIOKafkaProducer | None = None
        self._settings = settings
        self._transactional_id = transactional_id
        self._marks = TopicPartition(marks, MARKS_PARTITION) if marks else None

    async def mark(self) -> int:
        """The last committed mark of this id.

        Asked by librdkafka: a coordinator that is still loading, as just after a broker's start, says so for the group as a whole, and
        aiokafka takes that for a group that has committed nothing. Everything since the journal's own mark would go out twice.
        """
        if self._transactional_id is None or self._marks is None:
            return 0
        at = self._marks
        try:
            found = await asyncio.to_thread(committed, self._settings, self._transactional_id, at.topic, at.partition, ANSWER_TIMEOUT_S)
        except BusUnavailableError as error:
            raise LogUnavailableError(f"the mark of {self._transactional_id} could not be read: {error}") from error
        return found or 0

    async def send(self, batch: Sequence[Outgoing], mark: int = 0) -> None:
        """Returns when all is acked, or the transaction is committed."""
        try:
            if self._transactional_id is None:
                # A version is announced once every partition of admission has it: a job that names it then comes after.
                await self._send_all([out for out in batch if out.topic != DATASETS])
                await self._send_all([out for out in batch if out.topic == DATASETS])
                return
            await self._send_in_turn([out for out in batch if out.topic == CONTROL])
            await self._producer.begin_transaction()
            await self._send_all([out for out in batch if out.topic != CONTROL])
            if mark and self._marks is not None:
                # After the acks: a coordinator that adds the group refuses the records meanwhile, and they are sent again.
                await self._producer.send_offsets_to_transaction({self._marks: mark}, self._transactional_id)
            await self._producer.commit_transaction()
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise FencedError(f"another publisher has taken over {self._transactional_id}") from error
        except (KafkaError, IllegalOperation) as error:
            raise LogUnavailableError(f"publishing failed: {error!r}") from error

    async def close(self) -> None:
        """Stops the producer; what it did not commit is aborted by the next one's fence."""
        for producer in filter(None, (self._plain, self._producer)):
            with contextlib.suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(apart(producer.stop()), CLOSE_TIMEOUT_S)

    async def _send_in_turn(self, batch: Sequence[Outgoing]) -> None:
        """Without a transaction. Few records, and only where a pool moved: the producer is made for the first."""
        if batch and self._plain is None:
            self._plain = _producer(self._settings, None)
            await self._plain.start()
        for out in batch:
            assert self._plain is not None
            await know_partition(self._plain, out.topic, out.partition)
            await self._plain.send_and_wait(out.topic, value=out.value, key=out.key, partition=out.partition, headers=self._headers(out))

    async def _send_all(self, batch: Sequence[Outgoing]) -> None:
        for topic, partition in {(o.topic, o.partition) for o in batch if o.partition is not None}:
            await know_partition(self._producer, topic, partition)
        sending = [
            await self._producer.send(o.topic, value=o.value, key=o.key, partition=o.partition, headers=self._headers(o)) for o in batch
        ]
        await asyncio.gather(*sending)

    def _headers(self, out: Outgoing) -> list[tuple[str, bytes]]:
        """Agents write to control too: what the platform says there, it signs."""
        signed = [self._signing.header(out.topic, out.value)] if self._signing is not None and out.topic == CONTROL else []
        return [*out.headers, *signed]
