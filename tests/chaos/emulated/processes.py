"""Scheduler processes of an emulated campaign: each may be killed, stopped, held, cut off, slowed and given a wrong clock.

Holds: a process that ends is started again, as a supervisor would; a stopped one does not hear of assignments until it goes on.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, Faults, LoopClock, MemoryStore, call_directly
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

AGAIN_AFTER_S = 1.0
SNAPSHOT_EVERY = 100
# Steps of the fake log at which a broker may say no; the others only read.
WRITES = frozenset({"append", "publishing", "send"})
# Where a process is held: the step right before.
MOMENTS = {"append": "append", "publish": "publishing", "commit": "committing", "pointer": "send"}


@dataclass
class Troubles:
    """What is wrong with brokers and store now, for all. `refuses`: by "size", by "time"."""

    away: bool = False
    slow: bool = False
    refuses: str = ""


class Store(MemoryStore):
    """The object store; it may be away."""

    away = False

    def put(self, key: str, data: bytes) -> None:
        if self.away:
            raise OSError("the store is away")
        super().put(key, data)

    def get(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if self.away:
            raise OSError("the store is away")
        return super().get(key, default)


@dataclass
class Process:
    """One scheduler. `ended`: why its earlier starts ended by themselves."""

    name: str
    broker: FakeBroker
    store: Store
    troubles: Troubles
    rng: random.Random
    starts: int = 0
    cut: bool = False
    hold: tuple[str, float] | None = None
    held: int = 0
    clock: LoopClock = field(default_factory=LoopClock)
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.faults = Faults(self.rng, lose=0.002, lose_ack=0.002, late=0.002)
        self.awake = asyncio.Event()
        self.awake.set()
        self.start()

    def start(self) -> None:
        """A new start of it."""
        self.starts += 1
        machine = ScheduleMachine()
        self.log = FakeLog(self.broker, self.faults, self._step_of(self.starts))
        settings = HostSettings(DECISIONS, CONTROL, f"{self.name}{self.starts}", transactional=True)
        snapshots = Snapshots(self.log, self.store, DECISIONS, machine, every_records=SNAPSHOT_EVERY, offload=call_directly)
        self.host: JournalHost[ScheduleState] = JournalHost(settings, self.log, machine, snapshots, self.clock)
        self.task = asyncio.get_running_loop().create_task(self.host.run())
        self.task.add_done_callback(self._over)

    @property
    def alive(self) -> bool:
        """Whether it runs, stopped or not."""
        return not self.log.dead and not self.task.done()

    def kill(self) -> None:
        """As `kill -9`: what it had sent may still arrive."""
        if self.alive:
            self.log.dead = True
            self.task.cancel()

    def pause(self, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT later."""
        self.awake.clear()
        asyncio.get_running_loop().call_later(seconds, self.awake.set)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ended.append(f"{type(error).__name__}: {error}")
        self.log.dead = True
        asyncio.get_running_loop().call_later(AGAIN_AFTER_S, self.start)

    def _step_of(self, start: int):  # type: ignore[no-untyped-def]
        async def step(name: str) -> None:
            if start != self.starts:
                await asyncio.Event().wait()
            if self.hold is not None and MOMENTS[self.hold[0]] == name:
                seconds, self.hold = self.hold[1], None
                self.held += 1
                self.pause(seconds)
            await self.awake.wait()
            await self._through(name)

        return step

    async def _through(self, name: str) -> None:
        while (self.cut or self.troubles.away) and name in ("take", "taken", "appended", "committed"):
            await asyncio.sleep(0.1)  # readers wait; answers come late
        if self.cut or self.troubles.away:
            await asyncio.sleep(0.5)
            raise LogUnavailableError("no broker answers")
        if self.troubles.slow:
            await asyncio.sleep(0.18)
        if self.troubles.refuses and name in WRITES and not (self.troubles.refuses == "size" and name == "append"):
            raise LogUnavailableError(f"refused by {self.troubles.refuses}")
