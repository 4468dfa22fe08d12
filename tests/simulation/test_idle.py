"""Idle costs nothing: time passes without records, and still somebody decides in time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from tests.support.core_world import admitted, exited, progress, registered, started, stopped
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import Event, GangAllocated, envelope_of
from trainhouse.events.model.phases import Running
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

HOUR_S = 3600


@dataclass
class Partition:
    """One partition and the processes that may decide it. The first is assigned."""

    broker: FakeBroker = field(default_factory=FakeBroker)
    hosts: list[JournalHost[ScheduleState]] = field(default_factory=list)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    async def start(self, count: int) -> None:
        for number in range(count):
            log, machine = FakeLog(self.broker), ScheduleMachine()
            snapshots = Snapshots(log, MemoryStore(), DECISIONS, machine, offload=call_directly)
            settings = HostSettings(DECISIONS, CONTROL, f"owner-{number}", transactional=True)
            self.hosts.append(JournalHost(settings, log, machine, snapshots, LoopClock()))
            self.tasks.append(asyncio.create_task(self.hosts[-1].run()))
            await self.hosts[-1].ready.wait()
            self.hosts[-1].on_assigned({0} if number == 0 else set())
            await asyncio.sleep(1)

    def kill(self, number: int) -> None:
        self.tasks[number].cancel()

    async def say(self, *events: Event) -> None:
        for event in events:
            at = len(self.broker.logs[CONTROL, 0])
            self.broker.land(CONTROL, 0, b"0", encode(envelope_of(event, id=f"in-{at}", source="test", now_ms=1)))
        await asyncio.sleep(1)

    @property
    def records(self) -> list[JournalRecord]:
        return [JournalRecord.decode(e.value) for e in self.broker.committed(DECISIONS, 0)]

    @property
    def state(self) -> ScheduleState:
        return self.hosts[-1].followers[0].folded.state

    def gang(self, job_id: str) -> GangAllocated:
        return [d for r in self.records for d in r.decisions if isinstance(d, GangAllocated) and d.job_id == job_id][-1]

    async def running(self, job_id: str, **fields: object) -> GangAllocated:
        """A job that has made a step, and says nothing from then on."""
        await self.say(admitted(job_id, **fields))
        gang = self.gang(job_id)
        await self.say(*(started(gang, str(p.node_id)) for p in gang.placements), progress(gang, 1))
        return gang

    def replays(self) -> bool:
        entries = [LogEntry(0, e.offset, e.value or b"") for e in self.broker.committed(DECISIONS, 0)]
        return verify(entries, ScheduleMachine()).same


def simulated(story: Callable[[Partition], Awaitable[None]], processes: int = 1) -> Partition:
    world = Partition()

    async def run() -> None:
        await world.start(processes)
        await story(world)
        for task in world.tasks:
            assert not task.done() or task.cancelled()
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)

    run_virtually(run())
    return world


LIMITS = [{}, {"limits": {"run_time_s": 600_000}}, {"limits": {"run_time_s": 30_000}}]


@pytest.mark.parametrize("limits", LIMITS)
def test_an_idle_hour_has_at_most_sixty_records(limits: dict[str, object]) -> None:
    """Nodes, a job that runs and reports nothing, one that waits for its devices, one that waits behind both: 4,500 records before."""
    counted: list[int] = []

    async def story(world: Partition) -> None:
        await world.say(*(registered(f"n{i}", 8) for i in range(20)))
        await asyncio.sleep(20)
        await world.running("runs", ranks=100, **limits)
        await world.say(admitted("waits", ranks=100, **limits), admitted("behind", ranks=120, **limits))
        await asyncio.sleep(60)
        before = len(world.records)
        await asyncio.sleep(HOUR_S)
        counted.append(len(world.records) - before)

    world = simulated(story, processes=2)
    assert 25 <= counted[0] <= 60
    assert [r.seq for r in world.records if r.owner != "owner-0"] == [], "somebody stood in for an idle owner"
    assert world.replays()


def test_an_idle_hour_of_nothing_has_at_most_sixty_records() -> None:
    counted: list[int] = []

    async def story(world: Partition) -> None:
        await asyncio.sleep(60)
        before = len(world.records)
        await asyncio.sleep(HOUR_S)
        counted.append(len(world.records) - before)

    simulated(story)
    assert 25 <= counted[0] <= 60


def test_timers_run_out_in_time_without_records() -> None:
    ended: list[float] = []

    async def story(world: Partition) -> None:
        await world.say(registered("n", 2))
        await world.running("j", ranks=2, limits={"run_time_s": 1234.0})
        gang = world.gang("j")
        allotment = world.state.jobs["j"].allotment
        assert allotment is not None
        await asyncio.sleep(1300)
        asked = [r for r in world.records if any("CheckpointRequested" in type(d).__name__ for d in r.decisions)]
        ended.append((asked[0].now_ms - allotment.allocated_at_ms) / 1000)
        assert gang.attempt == 0

    simulated(story)
    assert 1234.0 <= ended[0] < 1235.0


def test_a_retry_starts_when_its_pause_is_over() -> None:
    async def story(world: Partition) -> None:
        await world.say(registered("n", 1))
        gang = await world.running("j", ranks=1)
        await world.say(exited(gang, 0, exit_code=9))
        await world.say(stopped(gang, "n"))
        await asyncio.sleep(40)
        again = world.gang("j")
        assert again.epoch == gang.epoch + 1
        started_ms = next(r.now_ms for r in world.records if again in r.decisions)
        due = next(d.not_before_ms for r in world.records for d in r.decisions if type(d).__name__ == "JobRequeued")  # type: ignore[attr-defined]
        assert started_ms - due < 1_000

    simulated(story)


@pytest.mark.parametrize("idle_s", [0, 7, 300])
def test_what_comes_in_after_an_idle_owner_died_is_decided_within_the_takeover_time(idle_s: int) -> None:
    took: list[float] = []

    async def story(world: Partition) -> None:
        await world.say(registered("n", 2))
        await asyncio.sleep(30 + idle_s)
        world.kill(0)
        await asyncio.sleep(min(idle_s, 20))
        began_s = asyncio.get_running_loop().time()
        world.broker.land(CONTROL, 0, b"0", encode(envelope_of(admitted("j", ranks=1), id="in", source="test", now_ms=1)))
        while "j" not in world.state.jobs:
            await asyncio.sleep(0.01)
        took.append(asyncio.get_running_loop().time() - began_s)

    simulated(story, processes=2)
    assert took[0] < 2.5


def test_a_timer_that_runs_out_after_an_idle_owner_died_is_handled_within_the_takeover_time() -> None:
    async def story(world: Partition) -> None:
        await world.say(registered("n", 2))
        await world.running("j", ranks=2, limits={"run_time_s": 100.0})
        allotment = world.state.jobs["j"].allotment
        assert allotment is not None
        world.kill(0)
        while isinstance(world.state.jobs["j"].phase, Running):
            await asyncio.sleep(0.01)
        late_s = (world.broker.now_ms() - allotment.allocated_at_ms) / 1000 - 100
        assert 0 <= late_s < 4.0
        assert world.records[-1].owner == "owner-1"

    simulated(story, processes=2)


def test_an_idle_partition_whose_owner_died_has_another_after_two_minutes() -> None:
    async def story(world: Partition) -> None:
        await world.say(registered("n", 2))
        await asyncio.sleep(30)
        world.kill(0)
        await asyncio.sleep(124)
        assert world.records[-1].owner == "owner-1"

    simulated(story, processes=2)
