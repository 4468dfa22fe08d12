"""The fleet, jobs and people of the simulation, over schedulers and a broker that all follow one virtual clock.

Holds: an input is bytes on the control topic, an order is read from the allocations topic as agents do; each pool is on a partition of its
own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from tests.chaos.emulated.processes import Process, Store, Troubles
from tests.simulation.schedule_world import World
from tests.support.fakes.journal_fakes import EPOCH_MS, FakeBroker, FakeLog
from trainhouse.events import Event, JobAdmitted, JobStatus, NodeRegistered, Order, decode, envelope_of
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.scheduler.core.state.state import ScheduleState

PARTITIONS = 2
# The small pool has the second partition.
PARTITION_OF = {"default": 0, "lab": 1}
ASSIGN_EVERY_S = 2.0


class EmulatedWorld(World):
    """To be made within a running virtual loop. `extremes`: offsets of what outsiders sent, by partition."""

    def __init__(self, seed: int, processes: int = 2) -> None:
        super().__init__(seed)
        self.loop = asyncio.get_running_loop()
        self.broker = FakeBroker(partitions=PARTITIONS)
        self.store, self.troubles = Store(), Troubles()
        self.extremes: dict[int, set[int]] = {p: set() for p in range(PARTITIONS)}
        self.processes = [Process(name, self.broker, self.store, self.troubles, Random(f"{seed}{name}")) for name in "abc"[:processes]]
        self._pool_of: dict[str, str] = {}
        self._inputs = 0
        self.background = [self.loop.create_task(work) for work in (self._read_orders(), self._read_statuses(), self._assign())]

    # ---- time

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return EPOCH_MS + int(self.loop.time() * 1000) if hasattr(self, "loop") else EPOCH_MS

    @now_ms.setter
    def now_ms(self, _: int) -> None:
        """The loop's clock alone counts."""

    def at(self, at_ms: int, act: Callable[[], Any]) -> None:
        """Then, or at once; of the same instant in order."""
        self._count += 1
        self.loop.call_at(max((at_ms - EPOCH_MS) / 1000, self.loop.time()) + self._count * 1e-9, act)

    # ---- inputs

    def arrives(self, event: Event, *, order: Order | None = None) -> None:
        """It is on the control topic; reports may come once more, later."""
        self._inputs += 1
        envelope = envelope_of(event, id=f"e{self._inputs}", source="test", now_ms=self.now_ms, order=order)
        self.broker.land(topics.CONTROL, self._partition(event), b"k", encode(envelope), HEADERS)
        repeatable = order is not None or not isinstance(event, NodeRegistered)
        if self.faulty and repeatable and self.rng.random() < 0.03:
            self.at(self.now_ms + self.rng.randrange(20_000), lambda: self.arrives(event, order=order))

    def outsider(self, partition: int, value: bytes) -> None:
        """Something that was made from a schema."""
        self.extremes[partition].add(self.broker.land(topics.CONTROL, partition, b"k", value, HEADERS).entry.offset)

    def jobs_pool(self, job_id: str, pool: str) -> None:
        """What is said of that job goes to that pool's partition."""
        self._pool_of[job_id] = pool

    def _partition(self, event: Event) -> int:
        if isinstance(event, JobAdmitted):
            self._pool_of[str(event.job_id)] = event.spec.pool
        pool = getattr(event, "pool", "") or self._pool_of.get(str(getattr(event, "job_id", "")), "default")
        return PARTITION_OF[str(pool)]

    # ---- what schedulers make public

    async def _read_orders(self) -> None:
        tail = await FakeLog(self.broker).open_tail(topics.ALLOCATIONS, dict.fromkeys(range(PARTITIONS), 0))
        while True:
            for entry in await tail.take(60.0):
                self.orders.append(decode(entry.value, entry.headers).event)
            for node in self.nodes.values():
                node.look()

    async def _read_statuses(self) -> None:
        tail = await FakeLog(self.broker).open_tail(topics.STATUS, dict.fromkeys(range(PARTITIONS), 0))
        while True:
            for entry in await tail.take(60.0):
                event = decode(entry.value, entry.headers).event
                if isinstance(event, JobStatus) and event.state.final:
                    self.ended.add(str(event.job_id))

    async def _assign(self) -> None:
        """The group gives partitions to those that live; who is stopped hears of it later, so that two may believe in one."""
        while True:
            live = [p for p in self.processes if p.alive and not p.cut]
            for number, process in enumerate(live):
                if process.awake.is_set() and process.host.ready.is_set():
                    mine = {p for p in range(PARTITIONS) if live[p % len(live)] is process or number == p == 0 == len(live)}
                    if mine != process.host._assigned:
                        process.host.on_assigned(mine)
            await asyncio.sleep(ASSIGN_EVERY_S)

    # ---- what a judge or a healer asks

    def states(self) -> list[ScheduleState]:
        """Of each partition, as the process that is furthest has it."""
        found = []
        for partition in range(PARTITIONS):
            followers = [p.host.followers[partition] for p in self.processes if partition in p.host.followers]
            found.append(max(followers, key=lambda f: f.folded.seq).folded.state)
        return found

    def close(self) -> None:
        """Its own tasks end."""
        for task in (*self.background, *(p.task for p in self.processes)):
            task.cancel()
