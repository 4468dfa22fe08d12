"""An in-memory log that behaves as the brokers do, faults included, and a virtual clock for whole processes in one event loop.

Holds: an entry lands once and for ever; a transaction is visible as a whole or not at all; whoever opens a transactional id fences the
one before it; a reader of committed entries waits behind an open transaction. The same contract suite runs against this and real Kafka.
"""

import asyncio
import contextlib
import random
import selectors
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.partitioner import murmur2

from trainhouse.events.wire.topics import CONTROL, UPGRADES
from trainhouse.scheduler.core.errors import BrokenInvariant, FencedError, LogUnavailableError, RecordTooLarge
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.interfaces import Appended, Entry

EPOCH_MS = 1_800_000_000_000
FIRST_ANSWER_S = 0.01


@dataclass
class Stored:
    """An entry and the transaction that it belongs to: `visible` None while that is open, False when it was aborted, or is its end."""

    entry: Entry
    visible: bool | None = True


@dataclass
class FakeBroker:
    """What all processes share."""

    partitions: int = 1
    fencing: bool = True
    max_bytes: int = 8 * 1024 * 1024
    logs: dict[tuple[str, int], list[Stored]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    marks: dict[str, int] = field(default_factory=dict)
    open: dict[str, list[tuple[str, Stored]]] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    arrivals: list[asyncio.Future[None]] = field(default_factory=list)
    pending: set[asyncio.Task[Any]] = field(default_factory=set)
    # Of its clock.
    offset_ms: int = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.offset_ms + int(asyncio.get_running_loop().time() * 1000)

    def land(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Any = (), visible: bool | None = True
    ) -> Stored:
        """One entry is in the log."""
        log = self.logs[topic, partition]
        stored = Stored(Entry(partition, len(log), self.now_ms(), key, value, tuple(headers)), visible)
        log.append(stored)
        self.stir()
        return stored

    def stir(self) -> None:
        """Readers look again."""
        for waiter in self.arrivals:
            if not waiter.done():
                waiter.set_result(None)
        self.arrivals.clear()

    def committed(self, topic: str, partition: int) -> list[Entry]:
        """What a reader of committed entries gets in the end."""
        return [s.entry for s in self.logs[topic, partition] if s.visible]

    def fence(self, transactional_id: str) -> int:
        """A new publisher: earlier ones are out, and what they had open is aborted."""
        self.epochs[transactional_id] += 1
        self.finish(transactional_id, False)
        return self.epochs[transactional_id]

    def finish(self, transactional_id: str, visible: bool) -> None:
        """Commits or aborts what is open; its end is an entry of each partition that it wrote to."""
        ended = set[tuple[str, int]]()
        for topic, stored in self.open.pop(transactional_id, []):
            stored.visible = visible
            ended.add((topic, stored.entry.partition))
        for topic, partition in sorted(ended):
            self.land(topic, partition, None, None, visible=False)
        self.stir()

    def background(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Work of the network: goes on when the client that caused it is dead."""
        task = asyncio.get_running_loop().create_task(work)
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)
        return task


@dataclass
class Faults:
    """What may happen to one process's calls; all chances between 0 and 1."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    lose: float = 0.0
    lose_ack: float = 0.0
    late: float = 0.0
    delay_s: float = 0.002


@dataclass
class FakeLog:
    """One process's view of the broker. `hook` is called at each step of each call, by name; it may wait, or raise."""

    broker: FakeBroker
    faults: Faults = field(default_factory=Faults)
    hook: Callable[[str], Awaitable[None]] | None = None
    dead: bool = False

    async def step(self, name: str) -> None:
        """A point at which this process may be paused, killed or delayed."""
        if self.hook is not None:
            await self.hook(name)
        if self.dead:
            await asyncio.Event().wait()

    async def append(self, topic: str, partition: int, value: bytes) -> Appended:
        await self.step("append")
        if len(value) > self.broker.max_bytes:
            raise RecordTooLarge(f"{len(value)} bytes")
        faults, rng = self.faults, self.faults.rng
        await asyncio.sleep(rng.uniform(0, faults.delay_s))
        if rng.random() < faults.lose:
            raise LogUnavailableError("lost on the way")
        if rng.random() < faults.late:
            self.broker.background(self._late(topic, partition, value, rng.uniform(0.01, 3)))
            raise LogUnavailableError("no answer in time")
        stored = self.broker.land(topic, partition, None, value)
        await self.step("appended")
        if rng.random() < faults.lose_ack:
            raise LogUnavailableError("the answer was lost")
        await asyncio.sleep(rng.uniform(0, faults.delay_s))
        return Appended(stored.entry.offset, stored.entry.timestamp_ms)

    async def _late(self, topic: str, partition: int, value: bytes, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self.broker.land(topic, partition, None, value)

    async def open_tail(self, topic: str, positions: Mapping[int, int]) -> "FakeTail":
        await self.step("open_tail")
        return FakeTail(self, topic, dict(positions))

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        await self.step("bounds")
        return self.broker.starts.get((topic, partition), 0), len(self.broker.logs[topic, partition])

    async def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        await self.step("bounds")
        return {p: len(self.broker.logs[topic, p]) for p in partitions}

    async def partitions(self, topic: str) -> list[int]:
        return list(range(self.broker.partitions))

    async def existing(self, topics: Collection[str]) -> set[str]:
        await self.step("existing")
        return set(topics) & self.broker.made

    async def topic_id(self, topic: str) -> str:
        return self.broker.topic_ids.get(topic, f"id-of-{topic}")

    async def open_publisher(self, transactional_id: str | None, marks: str = "") -> "FakePublisher":
        await self.step("fence")
        epoch = self.broker.fence(transactional_id) if transactional_id else 0
        return FakePublisher(self, transactional_id, epoch)

    async def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        await self.step("announce" if topic == UPGRADES else "send")
        self.broker.land(topic, 0, key, value)

    async def newest(self, topic: str, prefix: bytes) -> dict[bytes, bytes]:
        found = {e.key: e.value for e in self.broker.committed(topic, 0) if e.key is not None and e.key.startswith(prefix)}
        return {k: v for k, v in found.items() if v is not None}

    async def whole(self, topic: str) -> list[bytes | None]:
        await self.step("whole")
        return [e.value for e in self.broker.committed(topic, 0)]

    async def close(self) -> None:
        self.dead = True


@dataclass
class FakeTail:
    """A reader of committed entries. Whoever waits less than its first answer takes, gets nothing yet."""

    log: FakeLog
    topic: str
    positions: dict[int, int]
    begun_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    async def take(self, max_wait_s: float) -> list[Entry]:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + max_wait_s
        if end_s < self.begun_s + FIRST_ANSWER_S:
            await asyncio.sleep(max_wait_s)
            return []
        while True:
            await self.log.step("take")
            found = self._ready()
            if found or loop.time() >= end_s:
                break
            waiter = loop.create_future()
            self.log.broker.arrivals.append(waiter)
            await asyncio.wait([waiter], timeout=end_s - loop.time())
        if found:
            await asyncio.sleep(self.log.faults.rng.uniform(0, self.log.faults.delay_s))
            await self.log.step("taken")
        return found

    def _ready(self) -> list[Entry]:
        found: list[Entry] = []
        for partition, position in self.positions.items():
            if position < self.log.broker.starts.get((self.topic, partition), 0):
                raise BrokenInvariant(f"{self.topic}-{partition} no longer holds offset {position}")
            for stored in self.log.broker.logs[self.topic, partition][position:]:
                if stored.visible is None:
                    break
                self.positions[partition] += 1
                if stored.visible:
                    found.append(stored.entry)
        return found

    async def position(self, partition: int) -> int:
        return self.positions[partition]

    async def close(self) -> None:
        return


@dataclass
class FakePublisher:
    """Sends batches, one transaction each if it has an id."""

    log: FakeLog
    transactional_id: str | None
    epoch: int

    async def mark(self) -> int:
        await self.log.step("mark")
        return self.log.broker.marks.get(self.transactional_id or "", 0)

    async def send(self, batch: Sequence[Outgoing], mark: int = 0) -> None:
        rng, faults = self.log.faults.rng, self.log.faults
        await self.log.step("publish")
        # What goes to control is in no transaction: it goes before, and no fence stops it.
        apart = [out for out in batch if out.topic == CONTROL] if self.transactional_id else []
        for out in (*apart, *(out for out in batch if out not in apart)):
            await asyncio.sleep(rng.uniform(0, faults.delay_s / 4))
            await self.log.step("publishing")
            if out not in apart:
                self._check()
            if rng.random() < faults.lose / 10:
                raise LogUnavailableError("a send failed")
            self._land(out)
        await self.log.step("committing")
        self._check()
        if self.transactional_id:
            self.log.broker.finish(self.transactional_id, True)
            self.log.broker.marks[self.transactional_id] = mark or self.log.broker.marks.get(self.transactional_id, 0)
        await self.log.step("committed")
        if rng.random() < faults.lose_ack:
            raise LogUnavailableError("the answer to the commit was lost")

    def _land(self, out: Outgoing) -> None:
        broker = self.log.broker
        transactional = self.transactional_id is not None and broker.fencing and out.topic != CONTROL
        partition = out.partition if out.partition is not None else (murmur2(out.key) & 0x7FFFFFFF) % broker.partitions
        stored = broker.land(out.topic, partition, out.key, out.value, out.headers, visible=None if transactional else True)
        if transactional and self.transactional_id:
            broker.open.setdefault(self.transactional_id, []).append((out.topic, stored))

    def _check(self) -> None:
        broker = self.log.broker
        if self.transactional_id and broker.fencing and broker.epochs[self.transactional_id] != self.epoch:
            raise FencedError(self.transactional_id)

    async def close(self) -> None:
        if self.transactional_id and not self.log.dead and self.log.broker.epochs[self.transactional_id] == self.epoch:
            self.log.broker.finish(self.transactional_id, False)


class MemoryStore(dict[str, bytes]):
    """A snapshot store."""

    def put(self, key: str, data: bytes) -> None:
        self[key] = data

    def keys(self, prefix: str = "", start_after: str = "") -> Iterator[str]:  # type: ignore[override]
        return iter(sorted(k for k in dict.keys(self) if k.startswith(prefix) and k > start_after))

    def delete(self, key: str) -> None:
        self.pop(key, None)


@dataclass
class LoopClock:
    """The clocks of a process in virtual time; its clock of the day may be off."""

    offset_ms: int = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self.offset_ms + int(asyncio.get_running_loop().time() * 1000)

    def steady_s(self) -> float:
        return asyncio.get_running_loop().time()


class _Skip(selectors.SelectSelector):
    """Waits by moving time on: nothing in a virtual loop ever waits for the outside."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("deadlock in virtual time: nothing is due and nothing can arrive")
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only when everybody waits."""

    def __init__(self) -> None:
        self._skip = _Skip()
        super().__init__(self._skip)

    def time(self) -> float:
        return self._skip.now_s


def run_virtually(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in virtual time; what is left over is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


async def call_directly(function: Callable[..., Any], *arguments: Any) -> Any:
    """In place of a thread."""
    return function(*arguments)
