"""The inputs of one partition, from the cursor on: from the stream where it fits, read directly where it does not.

The stream processor's group offsets are only a hint (it acks a batch even when its agent raises), so what it hands over is used only
where it continues the cursor without a gap. Everywhere else, on assignment, after a mismatch, and for a stand-in that the group gave
nothing, the feed reads the topic itself from cursor + 1.

Holds: what `take` returns begins at cursor + 1 and has no gap; the inbox is bounded by count.
Never: skips; commits offsets.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from trainhouse.scheduler.core.protocol.batch import Limits, Pending, pending
from trainhouse.scheduler.stream.interfaces import Entry, Log, Tail

Vet = Callable[[Sequence[Entry], Sequence[Pending]], list[Pending]]
INBOX_COUNT = 2_000
CHECK_EVERY_S = 1.0


class InputFeed:
    """One partition's inputs. `offer` is the stream's side, `take` the owner's; both on one event loop."""

    def __init__(self, log: Log, topic: str, partition: int, limits: Limits, vet: Vet | None = None) -> None:
        self._vet = vet
        self._log = log
        self._topic = topic
        self._partition = partition
        self._limits = limits
        self._inbox: deque[Entry] = deque()
        self._stream_next: int | None = None
        self._arrived = asyncio.Event()
        self._tail: Tail | None = None
        self._tail_next = 0
        self._ahead: deque[Entry] = deque()

    def offer(self, entries: Sequence[Entry]) -> None:
        """Takes a batch of the stream. A gap or an overflow empties the inbox: the owner then reads the topic itself."""
        for entry in entries:
            if entry.offset != self._stream_next or len(self._inbox) >= INBOX_COUNT:
                self._inbox.clear()
            self._inbox.append(entry)
            self._stream_next = entry.offset + 1
        self._arrived.set()

    def reset(self) -> None:
        """Forgets the stream: the group took the partition away, or gave it anew."""
        self._inbox.clear()
        self._stream_next = None

    def wake(self) -> None:
        """Ends a waiting `take` early."""
        self._arrived.set()

    async def take(self, cursor: int, max_wait_s: float) -> list[Pending]:
        """Inputs from cursor + 1 on, at most a batch; nothing after `max_wait_s`. Raises BrokenInvariant if the topic lost them."""
        self._arrived.clear()
        while self._inbox and self._inbox[0].offset <= cursor:
            self._inbox.popleft()
        if self._stream_fits(cursor):
            await self._stop_reading()
            return await self._from_stream(cursor, max_wait_s)
        return await self._from_topic(cursor, max_wait_s)

    async def close(self) -> None:
        """Stops reading."""
        await self._stop_reading()

    def _stream_fits(self, cursor: int) -> bool:
        if self._inbox:
            return self._inbox[0].offset == cursor + 1
        return self._stream_next == cursor + 1

    async def _from_stream(self, cursor: int, max_wait_s: float) -> list[Pending]:
        if not self._inbox:
            await _wait(self._arrived, min(max_wait_s, CHECK_EVERY_S))
        if not self._inbox:
            await self._check_that_nothing_waits(cursor)
        entries: list[Entry] = []
        while self._inbox and len(entries) < self._limits.batch_count and self._stream_fits(cursor + len(entries)):
            entries.append(self._inbox.popleft())
        return self._read(entries)

    async def _check_that_nothing_waits(self, cursor: int) -> None:
        """The stream may stand still while the topic grows (a rebalance that never ends): then the owner reads the topic itself."""
        ends = await self._log.ends(self._topic, [self._partition])
        if ends[self._partition] > cursor + 1 and not self._inbox:
            self.reset()

    async def _from_topic(self, cursor: int, max_wait_s: float) -> list[Pending]:
        while self._ahead and self._ahead[0].offset <= cursor:
            self._ahead.popleft()
        due = self._ahead[0].offset if self._ahead else self._tail_next
        if self._tail is None or due > cursor + 1:
            await self._stop_reading()
            self._tail = await self._log.open_tail(self._topic, {self._partition: cursor + 1})
            self._tail_next = cursor + 1
        if not self._ahead:
            entries = await self._tail.take(max_wait_s)
            self._tail_next = entries[-1].offset + 1 if entries else self._tail_next
            self._ahead.extend(e for e in entries if e.offset > cursor)
        batch = [self._ahead.popleft() for _ in range(min(len(self._ahead), self._limits.batch_count))]
        return self._read(batch)

    async def _stop_reading(self) -> None:
        self._ahead.clear()
        if self._tail is not None:
            tail, self._tail = self._tail, None
            await tail.close()

    def _read(self, entries: Sequence[Entry]) -> list[Pending]:
        found = [pending(e.offset, e.value, e.headers, self._limits) for e in entries]
        return found if self._vet is None else self._vet(entries, found)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        pass
