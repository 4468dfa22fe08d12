"""Streams of fetched batches: each event of a stream is what one fetch brought of one partition.

Faust hands a stream one record at a time through several queues; `bench faust_streams` measures what that costs beside this, and what
`stream.take` costs: a lone record waits for its `within`. Here the setting `ConsumerScheduler`, which decides in which order fetched
records go to the streams, gives all of a partition's as one, so that an agent's loop takes batches and nothing of Faust is replaced.

Holds: a batch is one partition's records in order, never empty, and has the offset of its last record, so that Faust's ack of the event
commits all of it; nothing is decoded, so nothing can fail before an agent sees it.
Never: polls; holds a record back to wait for more.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import faust
from faust.types import TP
from faust.types.transports import SchedulingStrategyT

from trainhouse.scheduler.stream.interfaces import Entry


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition. `last`: no other partition's of the same topic and fetch follow."""

    partition: int
    entries: list[Entry]
    last: bool


class BatchScheduling(SchedulingStrategyT):
    """Faust's order of fetched records: topic by topic, a partition's records together."""

    def __init__(self) -> None:
        pass

    def iterate(self, records: Mapping[TP, list[Any]]) -> Iterator[tuple[TP, Any]]:
        """One record for each partition, whose value is its batch."""
        by_topic: dict[str, list[TP]] = {}
        for tp, found in records.items():
            if found:
                by_topic.setdefault(tp.topic, []).append(tp)
        for partitions in by_topic.values():
            for tp in partitions:
                batch = Batch(tp.partition, list(map(Entry.of, records[tp])), last=tp is partitions[-1])
                yield tp, replace(records[tp][-1], key=None, value=batch, headers=())


class BatchSchema(faust.Schema[None, Batch]):
    """Schema of a batch as one event: the value as it is."""

    def loads_key(self, app: Any, message: Any, **_: Any) -> None:
        """Batches have no key of their own."""

    def loads_value(self, app: Any, message: Any, **_: Any) -> Any:
        """The batch."""
        return message.value


async def fetches(stream: Any) -> AsyncIterator[dict[int, list[Entry]]]:
    """All that one fetch brought of a topic, by partition; acked when the loop's body is through with it."""
    stream.enable_acks = False
    events: list[Any] = []
    async for event in stream.events():
        events.append(event)
        if event.value.last:
            yield _together([e.value for e in events])
            for done in events:
                await stream.ack(done)
            events.clear()


def _together(batches: list[Batch]) -> dict[int, list[Entry]]:
    """After a rebalance a partition may come twice: what is read again follows what was read."""
    found: dict[int, list[Entry]] = {}
    for batch in batches:
        found.setdefault(batch.partition, []).extend(batch.entries)
    return found
