"""One batch of a partition as the brokers keep it, asked for by aiokafka: for readers whose own client cannot unpack it.

Holds: the batch of an offset is asked for, and no other; it is unpacked within the bound of stream processors (any_headers.py).
Never: joins a group; imports aiokafka before it is needed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.set_aside import is_too_large

ANSWER_S = 20.0
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One record of it. `timestamp_kind` as Kafka counts: 0 the producer's, 1 the broker's."""

    offset: int
    timestamp_kind: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Content of a batch, [first, end) in offsets, `packed_bytes` as it is sent. `readable`: no record stands in its place."""

    first: int
    end: int
    packed_bytes: int
    records: tuple[BatchRecord, ...]
    readable: bool


def batch_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> Batch | None:
    """The batch that has this offset, its records from there on; None where there is none. Blocks. Raises BusUnavailableError."""
    # In a thread of its own: who calls may be on an event loop, and another loop cannot run in its thread.
    with ThreadPoolExecutor(1) as thread:
        data = thread.submit(lambda: asyncio.run(_fetched(settings, topic, partition, offset))).result()
    return batch_of(data, offset) if data else None


def batch_of(data: bytes, offset: int) -> Batch:
    """The first batch of what brokers sent."""
    from trainhouse.events.bus.any_headers import AnyHeaders

    batch = AnyHeaders(data).next_batch()
    readable = True
    records = []
    for r in batch:
        readable = readable and not is_too_large(r.value)
        if r.offset >= offset:
            value = None if r.value is None else bytes(r.value)
            records.append(BatchRecord(r.offset, r.timestamp_type or 0, r.timestamp or 0, r.key, value, list(r.headers)))
    return Batch(batch.base_offset, batch.next_offset, batch.size_bytes, tuple(records), readable)


async def _fetched(settings: KafkaSettings, topic: str, partition: int, offset: int) -> bytes:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.errors import KafkaError, for_code
    from aiokafka.protocol.fetch import FetchRequest
    from aiokafka.structs import TopicPartition

    from trainhouse.events.bus.aiokafka_settings import aiokafka_config

    client = AIOKafkaClient(**aiokafka_config(settings))
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.bootstrap()
            await client._wait_on_metadata(topic)
            leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
            # Of so few bytes brokers send one whole batch all the same.
            asked = FetchRequest(0, 1, 1, _READ_COMMITTED, [(topic, [(partition, offset, 1)])])
            answer: Any = await client.send(leader, asked)
    except (KafkaError, TimeoutError) as error:
        raise BusUnavailableError(f"{topic}-{partition}: the batch at {offset} did not come: {error!r}") from error
    finally:
        await client.close()
    ((_, ((_, code, _, *found),)),) = answer.topics
    if code:
        raise BusUnavailableError(f"{topic}-{partition}: the batch at {offset} did not come: {for_code(code).__name__}")
    return bytes(found[-1] or b"")
