"""A publisher of effects over a real Kafka.

Holds: with a transactional id, a batch is one transaction, and a publisher that was fenced can make nothing visible;
without one, records of a partition arrive in order. After an error it is of no use any more.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, InvalidProducerEpoch, KafkaError, ProducerFenced

from trainhouse.scheduler.core.errors import Fenced, LogUnavailable
from trainhouse.scheduler.core.outgoing import Outgoing
from trainhouse.scheduler.stream.cancelling import apart

MAX_REQUEST_BYTES = 5 * 1024 * 1024
SEND_TIMEOUT_MS = 10_000
TRANSACTION_TIMEOUT_MS = 15_000
CLOSE_TIMEOUT_S = 1.0


async def open_publisher(config: dict[str, Any], transactional_id: str | None) -> "KafkaPublisher":
    """Starts a producer; with an id, waits until the brokers fenced every earlier one. Raises LogUnavailable."""
    producer = AIOKafkaProducer(
        **config,
        enable_idempotence=True,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        linger_ms=0,
        max_request_size=MAX_REQUEST_BYTES,
        request_timeout_ms=SEND_TIMEOUT_MS,
    )
    publisher = KafkaPublisher(producer, transactional_id)
    try:
        await producer.start()
        if transactional_id is not None:
            # The producer id comes with the first transaction; an empty one costs nothing more.
            await producer.begin_transaction()
            await producer.abort_transaction()
    except KafkaError as error:
        await publisher.close()
        raise LogUnavailable(f"the publisher {transactional_id or '(plain)'} could not start: {error!r}") from error
    except BaseException:
        await publisher.close()
        raise
    return publisher


class KafkaPublisher:
    """Sends batches in order."""

    def __init__(self, producer: AIOKafkaProducer, transactional_id: str | None) -> None:
        self._producer = producer
        self._transactional_id = transactional_id

    async def send(self, batch: Sequence[Outgoing]) -> None:
        """Returns when all is acked, or the transaction is committed."""
        try:
            if self._transactional_id is None:
                await self._send_all(batch)
                return
            await self._producer.begin_transaction()
            await self._send_all(batch)
            await self._producer.commit_transaction()
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise Fenced(f"another publisher has taken over {self._transactional_id}") from error
        except (KafkaError, IllegalOperation) as error:
            raise LogUnavailable(f"publishing failed: {error!r}") from error

    async def close(self) -> None:
        """Stops the producer; what it did not commit is aborted by the next one's fence."""
        with contextlib.suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(apart(self._producer.stop()), CLOSE_TIMEOUT_S)

    async def _send_all(self, batch: Sequence[Outgoing]) -> None:
        sending = [
            await self._producer.send(o.topic, value=o.value, key=o.key, partition=o.partition, headers=list(o.headers)) for o in batch
        ]
        await asyncio.gather(*sending)
