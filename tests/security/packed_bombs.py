"""Batches that unpack to far more than they are, as who may write to one topic can send them."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from trainhouse.events.settings import KafkaSettings

MIB = 1024 * 1024
_ROOM_BYTES = 2**31 - 1


async def send_batches(
    settings: KafkaSettings, topic: str, batches: Sequence[tuple[str | None, Sequence[bytes]]], partition: int = 0
) -> None:
    """Sends each as one batch: its codec, and the values of its records. Batches of one codec go out by one producer."""
    for packed_by, values in batches:
        producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap, compression_type=packed_by, max_request_size=_ROOM_BYTES, max_batch_size=_ROOM_BYTES
        )
        await producer.start()
        try:
            batch = producer.create_batch()
            for value in values:
                assert batch.append(key=b"k", value=value, timestamp=None) is not None
            await (await producer.send_batch(batch, topic, partition=partition))
        finally:
            await producer.stop()
