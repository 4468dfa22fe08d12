"""Fetched batches as events of a stream: whole, in order, with the offset of the last record; acked after they were handled."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from aiokafka.structs import ConsumerRecord
from faust.types import TP

from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.kafka.batching import Batch, BatchScheduling, BatchSchema, fetches


def record(topic: str, partition: int, offset: int) -> Any:
    return ConsumerRecord(topic, partition, offset, 1_000 + offset, 1, b"key", b"value", None, 3, 5, (("name", b"\xff"),))


def scheduled(records: dict[TP, list[Any]]) -> list[tuple[TP, Any]]:
    return list(BatchScheduling().iterate(records))


def test_a_partitions_records_are_one_event_with_the_offset_of_the_last() -> None:
    tp = TP("a", 3)
    ((found, made),) = scheduled({tp: [record("a", 3, 7), record("a", 3, 9)]})
    assert found == tp and (made.topic, made.partition, made.offset, made.key, made.headers) == ("a", 3, 9, None, ())
    entries = [Entry(3, offset, 1_000 + offset, b"key", b"value", (("name", b"\xff"),)) for offset in (7, 9)]
    assert made.value == Batch(3, entries, last=True)


def test_only_the_last_partition_of_a_topic_in_a_fetch_says_so_and_nothing_is_empty() -> None:
    fetched = {TP("a", 0): [record("a", 0, 1)], TP("b", 0): [record("b", 0, 1)], TP("a", 1): [record("a", 1, 1)], TP("a", 2): []}
    found = [(tp.topic, tp.partition, made.value.last) for tp, made in scheduled(fetched)]
    assert found == [("a", 0, False), ("a", 1, True), ("b", 0, True)]


def test_what_a_batch_holds_is_not_decoded() -> None:
    batch, schema = Batch(0, [], last=True), BatchSchema()
    message: Any = SimpleNamespace(key=b"\xff", value=batch)
    schema.loads_key(None, message)
    assert schema.loads_value(None, message) is batch


class Stream:
    """Events that are there, and what was acked when."""

    def __init__(self, *batches: Batch) -> None:
        self.enable_acks = True
        self.tale: list[Any] = []
        self._batches = batches

    async def events(self) -> AsyncIterator[Any]:
        for batch in self._batches:
            yield SimpleNamespace(value=batch)

    async def ack(self, event: Any) -> None:
        self.tale.append(("acked", event.value.partition))


def batch(partition: int, *offsets: int, last: bool = False) -> Batch:
    return Batch(partition, [Entry(partition, offset, 0, None, b"", ()) for offset in offsets], last)


def told(stream: Stream) -> list[Any]:
    async def run() -> None:
        async for found in fetches(stream):
            stream.tale.append({partition: [e.offset for e in entries] for partition, entries in found.items()})
            await asyncio.sleep(0)

    asyncio.run(run())
    assert not stream.enable_acks
    return stream.tale


def test_a_fetch_is_handled_together_and_acked_afterwards() -> None:
    stream = Stream(batch(0, 1, 2), batch(1, 5, last=True), batch(0, 3, last=True))
    assert told(stream) == [{0: [1, 2], 1: [5]}, ("acked", 0), ("acked", 1), {0: [3]}, ("acked", 0)]


def test_a_fetch_that_a_rebalance_cut_off_is_handled_with_what_is_read_again() -> None:
    stream = Stream(batch(0, 1, 2), batch(0, 1, 2, 3), batch(1, 5, last=True), batch(0, 4))
    assert told(stream) == [{0: [1, 2, 1, 2, 3], 1: [5]}, ("acked", 0), ("acked", 0), ("acked", 1)]
