"""The shell of the failure detector: heartbeats in, verdicts out, one soft state for each partition of heartbeats.

Holds: a tick counts as listened only if, for every partition, everything that the brokers held at the tick before has been read and the
brokers answered; a new partition is read back a little first, so that a node that died while nobody listened is known; a verdict is
kept until it is acked.
Never: judges while it was itself not reading.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import structlog

from trainhouse.events import Event, InvalidEvent, NodeHeartbeat, NodeLost, PoolCreated, envelope_of
from trainhouse.events.codec import HEADERS, decode, encode
from trainhouse.events.topics import CONTROL, HEARTBEATS, POOLS, VERDICTS
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState
from trainhouse.scheduler.core.errors import LogUnavailable
from trainhouse.scheduler.core.outgoing import Outgoing
from trainhouse.scheduler.stream.cancelling import still_wanted
from trainhouse.scheduler.stream.ports import Clock, Entry, Log, Publisher, Tail

TICK_S = 0.5
READ_BACK_RECORDS = 2_000
READ_WAIT_S = 1.0
MAX_WAITING_VERDICTS = 10_000
SOURCE = "trainhouse/detector"
log_ = structlog.get_logger(__name__)


class Detecting:
    """All partitions of heartbeats that the group gives to this process."""

    def __init__(self, log: Log, clock: Clock, machine: DetectorMachine) -> None:
        self._log = log
        self._clock = clock
        self._machine = machine
        self._states: dict[int, DetectorState] = {}
        self._read_up_to: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._pool_partition: dict[str, int] = {}
        self._waiting: deque[Outgoing] = deque(maxlen=MAX_WAITING_VERDICTS)
        self._publisher: Publisher | None = None
        self._pools: Tail | None = None

    async def take(self, by_partition: dict[int, list[Entry]]) -> None:
        """A batch of heartbeats; never raises."""
        for partition, entries in by_partition.items():
            self._hear(partition, entries)

    def on_assigned(self, partitions: set[int]) -> None:
        """The group changed what is this process's to watch; what is new is read back before it is judged."""
        for partition in set(self._states) - partitions:
            for known in (self._states, self._read_up_to, self._ends):
                known.pop(partition, None)
        for partition in partitions - set(self._states):
            self._states[partition] = self._machine.initial()

    async def run(self) -> None:
        """Ticks until cancelled."""
        while True:
            still_wanted()
            await asyncio.sleep(TICK_S)
            try:
                await self._follow_pools()
                await self._read_back_what_is_new()
                await self._tick()
                await self._publish()
            except LogUnavailable as error:
                self._ends.clear()
                log_.warning("brokers away; nobody is judged", error=str(error))
                await self._drop_clients()

    async def _tick(self) -> None:
        ends = {p: (await self._log.bounds(HEARTBEATS, p))[1] for p in self._states}
        now_ms = self._clock.now_ms()
        for partition, state in list(self._states.items()):
            due = self._ends.get(partition)
            reading = due is not None and self._read_up_to.get(partition, -1) >= due
            for verdict in self._machine.tick(state, now_ms, reading):
                log_.warning("verdict", type=verdict.event_type, node=getattr(verdict, "node_id", ""), partition=partition)
                self._waiting.extend(self._outgoing(verdict, now_ms))
        self._ends = {p: e for p, e in ends.items() if p in self._states}

    async def _read_back_what_is_new(self) -> None:
        for partition in [p for p in self._states if p not in self._read_up_to]:
            start, end = await self._log.bounds(HEARTBEATS, partition)
            position = max(start, end - READ_BACK_RECORDS)
            if position < end:
                tail = await self._log.open_tail(HEARTBEATS, {partition: position})
                try:
                    while position < end:
                        entries = await tail.take(READ_WAIT_S)
                        if not entries:
                            raise LogUnavailable(f"{HEARTBEATS}-{partition} gave nothing at offset {position}")
                        self._hear(partition, entries)
                        position = entries[-1].offset + 1
                finally:
                    await tail.close()
            self._read_up_to[partition] = max(end, self._read_up_to.get(partition, 0))

    def _hear(self, partition: int, entries: Iterable[Entry]) -> None:
        state = self._states.get(partition)
        if state is None:
            return
        for entry in entries:
            try:
                beat = decode(entry.value, entry.headers).event
            except InvalidEvent as error:
                log_.warning("no heartbeat", partition=partition, offset=entry.offset, error=str(error))
                continue
            if isinstance(beat, NodeHeartbeat):
                self._machine.heard(state, beat)
            if partition in self._read_up_to:
                self._read_up_to[partition] = max(self._read_up_to[partition], entry.offset + 1)

    async def _follow_pools(self) -> None:
        if self._pools is None:
            self._pools = await self._log.open_tail(POOLS, {0: (await self._log.bounds(POOLS, 0))[0]})
        for entry in await self._pools.take(0.001):
            try:
                event = decode(entry.value, entry.headers).event
            except InvalidEvent:
                continue
            if isinstance(event, PoolCreated):
                self._pool_partition[event.pool] = event.partition

    def _outgoing(self, verdict: Event, now_ms: int) -> list[Outgoing]:
        node_id, incarnation = str(getattr(verdict, "node_id", "")), str(getattr(verdict, "incarnation", ""))
        name = f"{verdict.event_type}:{node_id}:{incarnation}:{now_ms}"[:512]
        value = encode(envelope_of(verdict, id=name, source=SOURCE, now_ms=now_ms))
        found = [Outgoing(VERDICTS, node_id.encode(), value, HEADERS)]
        if isinstance(verdict, NodeLost):
            partition = self._pool_partition.get(verdict.pool)
            if partition is None:
                log_.error("a lost node's pool is not known; nobody can act on it", pool=verdict.pool, node=node_id)
            else:
                found.append(Outgoing(CONTROL, str(partition).encode(), value, HEADERS, partition))
        return found

    async def _publish(self) -> None:
        if not self._waiting:
            return
        if self._publisher is None:
            self._publisher = await self._log.open_publisher(None)
        batch = list(self._waiting)
        await self._publisher.send(batch)
        for _ in batch:
            self._waiting.popleft()

    async def _drop_clients(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close()
