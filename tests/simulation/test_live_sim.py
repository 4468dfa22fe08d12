"""Live statuses under faults: two schedulers over one log are killed, paused and swapped while jobs report their progress beside control.

Judged from the topics alone: numbers and places of a job's statuses only grow, whoever published them; what is shown in the end is the
newest report; the journal holds marks only, and its replay decides the same.
"""

import asyncio
import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import orjson
import pytest

from tests.simulation.test_journal_sim import SEEDS, Process
from tests.support.core_world import admitted, exited, progress, registered, started, stopped
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, MemoryStore, call_directly, run_virtually
from trainhouse.events import Event, GangAllocated, JobState, JobStatus, MovePool, Order, decode, envelope_of
from trainhouse.events.model.decisions import JobProgressed
from trainhouse.events.model.handover import PoolHandedOver, PoolPart
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.journal import read_decision
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, DECISIONS, PROGRESS, STATUS
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.pool_records import pool_records
from trainhouse.scheduler.core.state.pool_state import unpacked
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.journal.host import JournalHost, Live
from trainhouse.scheduler.stream.journal.progress_feed import ProgressFeed
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.scheduling.live_statuses import LiveJobStatuses

JOBS = [f"j{n}" for n in range(4)]
REPORT_S = 1.0


class LiveProcess(Process):
    """A scheduler with the real machine and its feed of progress."""

    def start(self) -> None:
        self.starts += 1
        self.log = FakeLog(self.broker, self.faults, self._hook)
        machine = ScheduleMachine()
        settings = HostSettings(DECISIONS, CONTROL, f"{self.name}{self.starts}", transactional=True)
        snapshots = Snapshots(self.log, self.store, DECISIONS, machine, every_records=self.every_records, offload=call_directly)
        live = Live(ProgressFeed[Any](self.log, self.clock), lambda: LiveJobStatuses(machine.name))
        self.host: JournalHost[Any] = JournalHost(settings, self.log, machine, snapshots, self.clock, live=live)
        self.task = asyncio.get_running_loop().create_task(self.host.run())


class World:
    """Two processes, one node, and the ranks of a few jobs. `old`: agents that send all of their progress to control."""

    def __init__(self, seed: int, *, old: bool = False) -> None:
        self.rng, self.old = random.Random(seed), old
        self.broker = FakeBroker()
        store = MemoryStore()
        self.processes = [LiveProcess(n, self.broker, store, self.rng) for n in "ab"]
        self.steps: dict[str, int] = {}
        self.gangs: dict[str, GangAllocated] = {}
        self.reported_s: dict[tuple[str, int], float] = {}
        self._names = 0

    def say(self, event: Event, topic: str = CONTROL) -> None:
        self._names += 1
        envelope = envelope_of(event, id=f"e{self._names}", source="test", now_ms=self.broker.now_ms())
        self.broker.land(topic, 0, b"k", encode(envelope), HEADERS)

    async def begin(self) -> None:
        for process in self.processes:
            process.start()
        await asyncio.gather(*(p.host.ready.wait() for p in self.processes))
        self.assign(0)
        self.say(registered("a", slots=len(JOBS)))
        for job_id in JOBS:
            self.say(admitted(job_id))
        while len(self.gangs) < len(JOBS):
            await asyncio.sleep(0.1)
            for entry in self.broker.committed(ALLOCATIONS, 0):
                event = decode(entry.value, HEADERS).event
                if isinstance(event, GangAllocated):
                    self.gangs[str(event.job_id)] = event
        for gang in self.gangs.values():
            self.say(started(gang, "a"))

    def assign(self, chosen: int | None) -> None:
        for number, process in enumerate(self.processes):
            if process.awake.is_set() and process.task is not None:
                process.host.on_assigned({0} if number == chosen else set())

    def report(self, job_id: str, *, last: bool = False) -> None:
        step = self.steps[job_id] = self.steps.get(job_id, 0) + 1
        self.reported_s[job_id, step] = asyncio.get_running_loop().time()
        beside = step > 1 and not last and not self.old
        event = progress(self.gangs[job_id], step, at_ms=self.broker.now_ms(), last=last and not self.old)
        self.say(event, PROGRESS if beside else CONTROL)

    async def ranks(self, seconds: float) -> None:
        """Each job reports once a second, at its own instants."""
        end_s = asyncio.get_running_loop().time() + seconds

        async def rank(job_id: str) -> None:
            await asyncio.sleep(self.rng.uniform(0, REPORT_S))
            while asyncio.get_running_loop().time() < end_s:
                self.report(job_id)
                await asyncio.sleep(REPORT_S)

        await asyncio.gather(*(rank(job_id) for job_id in JOBS))

    def statuses(self, job_id: str) -> list[tuple[JobStatus, Order]]:
        found = []
        for entry in self.broker.committed(STATUS, 0):
            envelope = decode(entry.value, HEADERS)
            if isinstance(envelope.event, JobStatus) and envelope.event.job_id == job_id and envelope.order is not None:
                found.append((envelope.event, envelope.order))
        return found

    def decided(self) -> dict[str, int]:
        counts: dict[str, int] = defaultdict(int)
        seq = 0
        for entry in self.broker.committed(DECISIONS, 0):
            record = orjson.loads(entry.value or b"")
            if record["seq"] == seq + 1:
                seq += 1
                for decision in record["decisions"]:
                    counts[decision["type"]] += 1
        return counts

    def judge(self) -> list[str]:
        wrong = []
        for job_id in JOBS:
            told = self.statuses(job_id)
            numbers, places = [s.status_seq for s, _ in told], [(o.seq, o.ordinal) for _, o in told]
            if numbers != sorted(set(numbers)):
                wrong.append(f"{job_id}: numbers {numbers}")
            if places != sorted(set(places)):
                wrong.append(f"{job_id}: places {places}")
            steps = [s.step for s, _ in told if s.step is not None]
            back = sum(newer < older for older, newer in pairwise(steps))
            if back:
                wrong.append(f"{job_id}: {back} times an older step is shown: {steps}")
            if told[-1][0].step != self.steps[job_id]:
                wrong.append(f"{job_id}: step {told[-1][0].step} is shown, {self.steps[job_id]} was the last")
            if any(s.live_room is not None for s, _ in told):
                wrong.append(f"{job_id}: what is the journal's alone is public")
        entries = [LogEntry(0, e.offset, e.value or b"") for e in self.broker.committed(DECISIONS, 0)]
        wrong.extend(str(d) for d in verify(entries, ScheduleMachine()).differences)
        return wrong

    async def finish(self) -> None:
        for job_id in JOBS:
            self.report(job_id, last=True)
            self.say(exited(self.gangs[job_id], 0))
            self.say(stopped(self.gangs[job_id], "a"))


@pytest.mark.parametrize("old", [False, True])
def test_each_report_is_shown_at_once_and_the_journal_holds_a_mark_a_minute(old: bool) -> None:
    world = World(1, old=old)

    async def story() -> None:
        await world.begin()
        await world.ranks(130)
        late = []
        for job_id in JOBS:
            shown = {s.step: s.updated_at_ms for s, _ in world.statuses(job_id)}
            late += [step for step in range(2, world.steps[job_id] + 1) if step not in shown]
        assert late == []
        await world.finish()
        await asyncio.sleep(2)

    run_virtually(story())
    assert world.judge() == []
    assert all(world.statuses(j)[-1][0].state is JobState.SUCCEEDED for j in JOBS)
    counts = world.decided()
    assert counts["trainhouse.decision.job-progressed.v1"] <= len(JOBS) * 6, counts
    assert counts["trainhouse.job.status.v1"] <= len(JOBS) * 9, counts


def test_statuses_go_on_soon_after_an_owner_died_though_nothing_but_progress_comes_in() -> None:
    """Nothing on control waits then, and an idle journal is left alone for two minutes: the stand-in must see that jobs report."""
    world = World(2)

    async def story() -> float:
        await world.begin()
        reporting = asyncio.create_task(world.ranks(30))
        await asyncio.sleep(15)
        world.processes[0].kill()
        killed_ms = world.broker.now_ms()
        await reporting
        await asyncio.sleep(2.5)
        assert world.judge() == []
        return min(s.updated_at_ms for s, o in world.statuses("j0") if s.updated_at_ms > killed_ms + 100) - killed_ms

    assert run_virtually(story()) < 4_000


def test_a_move_hands_over_the_newest_progress_however_slow_the_journal_is() -> None:
    """Reports are newer than the state before each record then: one record with them comes before the move, and no second one."""
    world = World(3)

    async def story() -> None:
        await world.begin()
        world.processes[0].faults.delay_s = 4.0
        reporting = asyncio.create_task(world.ranks(40))
        await asyncio.sleep(15)
        world.say(MovePool.model_validate({"pool": "default", "to_partition": 1}))
        await reporting

    run_virtually(story())
    records = [orjson.loads(e.value or b"") for e in world.broker.committed(DECISIONS, 0)]
    decided = [[read_decision(d) for d in record["decisions"]] for record in records]
    [moved] = [n for n, made in enumerate(decided) if any(isinstance(d, PoolHandedOver) for d in made)]
    marked = {str(d.job_id): d.progress.step for d in decided[moved - 1] if isinstance(d, JobProgressed)}
    assert set(marked) == set(JOBS) and min(marked.values()) >= 10
    assert not any(isinstance(d, JobProgressed) for d in decided[moved])
    jobs = pool_records(unpacked([d.data for d in decided[moved] if isinstance(d, PoolPart)])).jobs
    assert {str(j.job_id): j.progress.step for j in jobs if j.progress is not None} == marked


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_only_grow_whoever_publishes(seed: int) -> None:
    world = World(seed)

    async def faults() -> None:
        rng, loop = world.rng, asyncio.get_running_loop()
        for process in world.processes:
            process.faults.lose, process.faults.lose_ack, process.faults.late = 0.02, 0.04, 0.02
            process.clock.offset_ms = rng.choice([0, 0, 40, -3000, 86_400_000, -86_400_000])
        for _ in range(14):
            process = rng.choice(world.processes)
            match rng.randrange(5):
                case 0:
                    process.kill()
                    loop.call_later(rng.uniform(0.1, 3), process.start)
                case 1:
                    process.awake.clear()
                    loop.call_later(rng.uniform(0.5, 9), process.awake.set)
                case 2:
                    world.assign(rng.choice([0, 1, None]))
                case 3:
                    for each in world.processes:
                        each.host.on_assigned({0})
                case _:
                    pass
            await asyncio.sleep(rng.uniform(0.2, 4))

    async def heal() -> None:
        for process in world.processes:
            process.faults.lose = process.faults.lose_ack = process.faults.late = 0.0
            process.awake.set()
        await asyncio.sleep(4)

    async def story() -> None:
        await world.begin()
        await asyncio.gather(world.ranks(60), faults())
        await heal()
        await world.ranks(20)
        await asyncio.sleep(2.5)
        assert world.judge() == [], f"seed {seed}"
        await world.finish()
        await asyncio.sleep(4)

    run_virtually(story())
    assert world.judge() == [], f"seed {seed}"
    assert all(world.statuses(j)[-1][0].state is JobState.SUCCEEDED for j in JOBS)
