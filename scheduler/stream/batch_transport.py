"""Faust's Kafka driver with one more way to take records: a topic's fetched batches as they are, past the streams.

A stream takes records one at a time through several queues, 0.2 ms each; a journal's inputs need nothing of that, since its owner knows
from the journal what it has handled. When a gang of 512 ranks ends, its 512 reports wait for each other.

Holds: the group, its assignments and the connection to the brokers are Faust's; a batch is handed over in the order of the partition.
Offsets of such topics are committed now and then, as a hint where to go on, whatever became of the batch.
Never: trusted for exactness: see the feed.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from faust.transport.drivers.aiokafka import Consumer, Transport
from faust.types import TP

from trainhouse.scheduler.stream.patience import be_patient
from trainhouse.scheduler.stream.ports import Entry

COMMIT_EVERY_S = 5.0
Batches = Callable[[dict[int, list[Entry]]], Awaitable[None]]


class BatchConsumer(Consumer):
    """Faust's consumer; batches of the transport's `whole` topics go to their handlers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._handed: dict[TP, int] = {}
        self._hinted_s = time.monotonic()

    async def _wait_next_records(self, timeout: float) -> Any:
        be_patient(self._thread._consumer)
        records, active = await super()._wait_next_records(timeout)
        if records:
            await self._hand_over(records)
        return records, active

    async def _hand_over(self, records: Any) -> None:
        whole: Mapping[str, Batches] = self.transport.whole  # type: ignore[attr-defined]
        for tp in [tp for tp in records if tp.topic in whole]:
            found = records.pop(tp)
            entries = [Entry(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found]
            await whole[tp.topic]({tp.partition: entries})
            self._handed[TP(tp.topic, tp.partition)] = entries[-1].offset + 1
        if self._handed and time.monotonic() - self._hinted_s >= COMMIT_EVERY_S:
            self._hinted_s = time.monotonic()
            handed, self._handed = self._handed, {}
            await self._commit(handed)


class BatchTransport(Transport):
    """Faust's transport. `whole`: the topics whose batches are handed over as they are."""

    Consumer = BatchConsumer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.whole: dict[str, Batches] = {}
