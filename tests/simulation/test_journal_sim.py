"""The journal protocol in virtual time: several processes, one log, faults from a seed; a separate judge reads what is left.

A failure prints its seed; `JOURNAL_SIM_SEEDS=7,8 pytest tests/simulation/test_journal_sim.py` runs given ones.
"""

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field

import orjson
import pytest

from tests.support.counting_machine import PROJECT, CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import (
    FakeBroker,
    FakeLog,
    Faults,
    LoopClock,
    MemoryStore,
    call_directly,
    run_virtually,
)
from trainhouse.events.wire.project_topics import status_topic
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, DECISIONS, STATUS
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

SEEDS = [int(s) for s in os.environ.get("JOURNAL_SIM_SEEDS", ",".join(map(str, range(10)))).split(",")]
HEAL_WITHIN_S = 20.0


class Process:
    """One scheduler process: may be paused and woken, killed and started anew."""

    def __init__(self, name: str, broker: FakeBroker, store: MemoryStore, rng: random.Random, every_records: int = 40) -> None:
        self.name, self.broker, self.store, self.rng = name, broker, store, rng
        self.every_records = every_records
        self.starts = 0
        self.crash_at: tuple[str, int] | None = None
        self.seen: Counter[str] = Counter()
        self.awake = asyncio.Event()
        self.awake.set()
        self.faults = Faults(rng)
        self.clock = LoopClock()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.starts += 1
        self.log = FakeLog(self.broker, self.faults, self._hook)
        machine = CountingMachine()
        settings = HostSettings(DECISIONS, CONTROL, f"{self.name}{self.starts}", transactional=True)
        snapshots = Snapshots(self.log, self.store, DECISIONS, machine, every_records=self.every_records, offload=call_directly)
        self.host: JournalHost[Counts] = JournalHost(settings, self.log, machine, snapshots, self.clock)
        self.task = asyncio.get_running_loop().create_task(self.host.run())

    def kill(self) -> None:
        """As `kill -9`: nothing of it runs any more; what it had sent may still arrive."""
        self.log.dead = True
        if self.task is not None:
            self.task.cancel()

    async def _hook(self, step: str) -> None:
        log = self.log
        self.seen[step] += 1
        if self.crash_at is not None and (step, self.seen[step]) == self.crash_at:
            self.crash_at = None
            self.kill()
            asyncio.get_running_loop().call_later(0.5, self.start)
        if log.dead:
            await asyncio.Event().wait()
        await self.awake.wait()


@dataclass
class World:
    """Processes over one broker, and what was put in."""

    seed: int
    fencing: bool = True
    broker: FakeBroker = field(init=False)
    processes: list[Process] = field(init=False)
    produced: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.broker = FakeBroker(fencing=self.fencing, made={status_topic(PROJECT)})
        store = MemoryStore()
        self.processes = [Process(n, self.broker, store, self.rng) for n in "ab"]

    def produce(self, **more: str) -> None:
        self.broker.land(CONTROL, 0, b"k", cancel(self.produced, **more))
        self.produced += 1

    def assign(self, chosen: int | None) -> None:
        """The group gives the partition to one process; a paused one only hears of it later, so both may believe in it."""
        for number, process in enumerate(self.processes):
            if process.awake.is_set() and process.task is not None:
                process.host.on_assigned({0} if number == chosen else set())

    def hint(self) -> None:
        """The stream hands over some batch to everybody: perhaps with a gap, perhaps old."""
        log = self.broker.logs[CONTROL, 0]
        if log:
            start = self.rng.randrange(len(log))
            entries: list[Entry] = [s.entry for s in log[start : start + self.rng.randrange(1, 40)]]
            for process in self.processes:
                process.host.offer(0, entries)


def judge(world: World) -> list[str]:
    """Reads the log as any reader would, by no code of the product's protocol; says all that is wrong."""
    wrong: list[str] = []
    seq, applied, counts, visible = 0, Counter[int](), Counter[str](), {}
    due: dict[tuple[str, int], None] = {}
    last = -1
    for entry in world.broker.committed(DECISIONS, 0):
        record = orjson.loads(entry.value or b"")
        if record["seq"] != seq + 1:
            continue
        seq += 1
        offsets = [i["offset"] for i in record["inputs"] if i["offset"] is not None]
        if offsets and offsets != list(range(last + 1, last + 1 + len(offsets))):
            wrong.append(f"seq {seq}: inputs {offsets} do not follow {last}")
        last = offsets[-1] if offsets else last
        applied.update(offsets)
        for decision in record["decisions"]:
            if decision["type"] == "trainhouse.job.status.v1":
                job = decision["data"]["job_id"]
                counts[job] = decision["data"]["status_seq"]
                due[job, counts[job]] = None
    missing = [n for n in range(world.produced) if applied[n] != 1]
    if missing:
        wrong.append(f"inputs not applied exactly once: {missing[:10]} of {world.produced}")
    for entry in world.broker.committed(STATUS, 0):
        status = orjson.loads(entry.value or b"")["data"]
        if status["state"] == "PENDING":
            visible[status["job_id"]] = status["status_seq"]
            due.pop((status["job_id"], status["status_seq"]), None)
    # The transaction is one: what a project reads of its jobs is what stands on the status topic, as often and in the same order.
    everywhere = [e.value for e in world.broker.committed(STATUS, 0) if orjson.loads(e.value or b"")["data"]["project"] == PROJECT]
    if everywhere != [e.value for e in world.broker.committed(status_topic(PROJECT), 0)]:
        wrong.append("the project's status topic differs from the status topic")
    if due:
        wrong.append(f"effects never published: {list(due)[:10]}")
    if visible != dict(counts):
        wrong.append(f"the last status of a job is not the newest: {visible} instead of {dict(counts)}")
    for process in world.processes:
        follower = process.host.followers[0]
        if follower.folded.seq == seq and follower.folded.state.counts != dict(counts):
            wrong.append(f"{process.name} folded another state")
    entries = [LogEntry(0, e.offset, e.value or b"") for e in world.broker.committed(DECISIONS, 0)]
    report = verify(entries, CountingMachine())
    wrong.extend(str(d) for d in report.differences)
    return wrong


def settled(world: World) -> bool:
    follower = world.processes[0].host.followers.get(0)
    if follower is None or world.broker.open or any(0 not in p.host.followers for p in world.processes):
        return False
    return all(p.host.followers[0].folded.cursor == world.produced - 1 for p in world.processes) and (
        follower.folded.published_up_to >= follower.folded.seq - 3
    )


async def heal(world: World) -> None:
    """No more faults: everything must come to an end soon."""
    loop = asyncio.get_running_loop()
    for process in world.processes:
        process.faults.lose = process.faults.lose_ack = process.faults.late = 0.0
        process.crash_at = None
        process.awake.set()
        if process.log.dead:
            await asyncio.sleep(0.6)
            if process.log.dead:
                process.start()
    end_s = loop.time() + HEAL_WITHIN_S
    while not settled(world):
        for process in world.processes:
            assert process.task is not None
            if process.task.done() and not process.log.dead:
                process.task.result()
        assert loop.time() < end_s, f"seed {world.seed}: no progress within {HEAL_WITHIN_S} s after the faults ended"
        await asyncio.sleep(0.05)


async def chaos(world: World, rounds: int = 25) -> None:
    rng = world.rng
    for process in world.processes:
        process.faults.lose, process.faults.lose_ack, process.faults.late = 0.03, 0.05, 0.03
        process.clock.offset_ms = rng.choice([0, 0, 40, -3000, 86_400_000, -86_400_000])
        process.start()
    await asyncio.gather(*(p.host.ready.wait() for p in world.processes))
    world.assign(0)
    for _ in range(rounds):
        for _ in range(rng.randrange(12)):
            world.produce()
        process = rng.choice(world.processes)
        match rng.randrange(12):
            case 0:
                process.kill()
                asyncio.get_running_loop().call_later(rng.uniform(0.1, 3), process.start)
            case 1:
                process.awake.clear()
                asyncio.get_running_loop().call_later(rng.uniform(0.5, 9), process.awake.set)
            case 2:
                world.assign(rng.choice([0, 1, None]))
            case 3:
                for each in world.processes:
                    each.host.on_assigned({0})
            case 4 | 5 | 6:
                world.hint()
            case 7:
                world.produce(user="poison")
            case _:
                pass
        await asyncio.sleep(rng.uniform(0.01, 0.8))
    await asyncio.sleep(3.1)
    await heal(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_input_counts_once_under_faults(seed: int) -> None:
    world = World(seed)
    run_virtually(chaos(world))
    assert judge(world) == [], f"seed {seed}"
    assert world.broker.committed(DEAD_LETTERS, 0) or not any(b"poison" in (e.value or b"") for e in world.broker.committed(CONTROL, 0)), (
        f"seed {seed}: a poison input left no dead letter"
    )


STEPS = ("append", "appended", "take", "taken", "fence", "publish", "publishing", "committing", "committed", "bounds")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_crash_at_any_point_loses_and_doubles_nothing(step: str, count: int) -> None:
    world = World(1000 + count)

    async def run() -> None:
        world.processes[0].crash_at = (step, count)
        for process in world.processes:
            process.start()
        for _ in range(20):
            world.produce()
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        await heal(world)

    run_virtually(run())
    assert judge(world) == []


async def woken_publisher(world: World) -> None:
    """A process is paused right before a status lands; another one takes over and publishes newer ones; then the first one wakes."""
    first, second = world.processes
    first.start()
    await first.host.ready.wait()
    await asyncio.sleep(0.5)
    plain, log = first._hook, first.log

    async def pause_before_landing(step: str) -> None:
        if step == "publishing":
            first.awake.clear()
        await plain(step)

    log.hook = pause_before_landing
    world.produce(jobs=1)
    await asyncio.sleep(0.5)
    assert not first.awake.is_set()
    second.start()
    await asyncio.sleep(3)
    for _ in range(3):
        world.produce(jobs=1)
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)  # the second one's ticks say that all of it is out: nobody will publish it again
    log.hook = plain
    first.awake.set()
    await asyncio.sleep(0.05)


def statuses(world: World) -> list[int]:
    return [orjson.loads(e.value or b"")["data"]["status_seq"] for e in world.broker.committed(STATUS, 0)]


def test_a_woken_publisher_is_fenced() -> None:
    world = World(5)
    run_virtually(woken_publisher(world))
    assert statuses(world)[-1] == 4


def test_without_fencing_a_woken_publisher_does_harm() -> None:
    world = World(5, fencing=False)
    run_virtually(woken_publisher(world))
    assert statuses(world)[-1] == 1, "this scenario must do harm, or the test above proves nothing"


def test_silence_is_ended_within_the_takeover_time() -> None:
    world = World(9)

    async def run() -> float:
        for process in world.processes:
            process.start()
        await asyncio.gather(*(p.host.ready.wait() for p in world.processes))
        world.assign(0)
        await asyncio.sleep(1.5)
        world.processes[0].kill()
        killed_s = asyncio.get_running_loop().time()
        world.produce()
        while world.processes[1].host.followers[0].folded.cursor < 0:
            await asyncio.sleep(0.01)
        return asyncio.get_running_loop().time() - killed_s

    assert run_virtually(run()) < 2.5


def test_what_comes_in_is_followed_by_a_tick_at_once() -> None:
    """Gangs are placed at ticks alone: a submission must not wait for an idle one."""
    world = World(11)

    async def run() -> None:
        world.processes[0].start()
        await world.processes[0].host.ready.wait()
        world.assign(0)
        await asyncio.sleep(1.5)
        for _ in range(200):
            world.produce()
            await asyncio.sleep(world.rng.choice([0.001, 0.005, 0.03, 0.4]))
        await asyncio.sleep(1)

    run_virtually(run())
    owed_ms: int | None = None
    records = [orjson.loads(e.value or b"") for e in world.broker.committed(DECISIONS, 0)]
    for record in records:
        if record["inputs"] and owed_ms is None:
            owed_ms = record["now_ms"]
        if any(i["offset"] is None for i in record["inputs"]):
            assert owed_ms is None or record["now_ms"] - owed_ms <= 40, "an input waited for its tick"
            owed_ms = None
    assert owed_ms is None and sum(1 for r in records for i in r["inputs"] if i["offset"] is not None) == 200
