"""Clocks that are wrong by an hour or a day, in a whole journal: records keep the true time, and none of them is held back by it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import EPOCH_MS, FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.protocol.log_clock import TOLERANCE_MS
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

HOUR_MS = 3_600_000
STEPS_MS = (HOUR_MS, -HOUR_MS, 24 * HOUR_MS, -24 * HOUR_MS)
CLOSE_MS = 500


class Stage:
    """A journal, its processes, and how far each of its records is from the true time."""

    def __init__(self) -> None:
        self.broker, self.store = FakeBroker(), MemoryStore()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.errors: list[tuple[str, int]] = []

    async def start(self, name: str, clock: LoopClock | None = None, *, assigned: bool = True, every_records: int = 10) -> LoopClock:
        clock = clock or LoopClock()
        log = FakeLog(self.broker)
        snapshots = Snapshots(log, self.store, DECISIONS, CountingMachine(), every_records=every_records, offload=call_directly)
        host: JournalHost[Counts] = JournalHost(
            HostSettings(DECISIONS, CONTROL, name, transactional=True), log, CountingMachine(), snapshots, clock
        )
        self.tasks[name] = asyncio.create_task(host.run())
        await host.ready.wait()
        if assigned:
            host.on_assigned({0})
        return clock

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def go_on(self, seconds: float) -> None:
        """Inputs come; each record that is appended meanwhile, but for claims, is compared with the true time."""
        end_s = now_s() + seconds
        while now_s() < end_s:
            begin, true_ms = len(self.broker.logs[DECISIONS, 0]), EPOCH_MS + int(now_s() * 1000)
            self.broker.land(CONTROL, 0, b"k", cancel(begin))
            await asyncio.sleep(0.5)
            for entry in self.broker.committed(DECISIONS, 0)[begin:]:
                record = JournalRecord.decode(entry.value or b"")
                if record.inputs:
                    self.errors.append((record.owner, record.now_ms - true_ms))
        for task in self.tasks.values():
            assert not task.done(), task.result()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def story(scene: Callable[[Stage], Awaitable[None]], owners: set[str], close_ms: int = CLOSE_MS) -> None:
    async def run() -> None:
        stage = Stage()
        await scene(stage)
        assert {owner for owner, _ in stage.errors} == owners
        assert all(-close_ms <= error_ms <= close_ms + 500 for _, error_ms in stage.errors), stage.errors

    run_virtually(run())


@pytest.mark.parametrize("step_ms", STEPS_MS)
@pytest.mark.parametrize("whose", ["owner", "brokers"])
def test_a_step_of_one_clock_moves_no_record(step_ms: int, whose: str) -> None:
    async def scene(stage: Stage) -> None:
        clock = await stage.start("a")
        await stage.go_on(20)
        for off_ms in (step_ms, 0, step_ms, 0):
            if whose == "owner":
                clock.offset_ms = off_ms
            else:
                stage.broker.offset_ms = off_ms
            await stage.go_on(60)

    story(scene, {"a"})


@pytest.mark.parametrize("step_ms", STEPS_MS)
@pytest.mark.parametrize("whose", ["owner", "brokers", "both"])
def test_a_stand_by_takes_over_at_the_true_time_whatever_the_clocks_say(step_ms: int, whose: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start("a")
        clock = await stage.start("b", assigned=False)
        await stage.go_on(10)
        if whose != "brokers":
            clock.offset_ms = step_ms
        if whose != "owner":
            stage.broker.offset_ms = step_ms
        await stage.stop("a")
        await stage.go_on(6)

    story(scene, {"a", "b"})


@pytest.mark.parametrize("step_ms", STEPS_MS)
@pytest.mark.parametrize("whose", ["owner", "brokers"])
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_process_that_starts_finds_the_true_time_though_one_clock_was_set(step_ms: int, whose: str, trimmed: bool) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start("a")
        await stage.go_on(30)
        await stage.stop("a")
        if trimmed:
            stage.broker.starts[DECISIONS, 0] = len(stage.broker.logs[DECISIONS, 0]) - 15
        clock = LoopClock()
        if whose == "owner":
            clock.offset_ms = step_ms
        else:
            stage.broker.offset_ms = step_ms
        await stage.start("b", clock)
        await stage.go_on(30)

    story(scene, {"a", "b"})


@pytest.mark.parametrize("off_ms", [0, *(s for s in STEPS_MS if s != -HOUR_MS)])
@pytest.mark.parametrize("whose", ["owner", "brokers"])
def test_three_hours_down_are_three_hours(off_ms: int, whose: str) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start("a")
        await stage.go_on(10)
        await stage.stop("a")
        await asyncio.sleep(3 * 3600)
        clock = LoopClock()
        if whose == "owner":
            clock.offset_ms = off_ms
        else:
            stage.broker.offset_ms = off_ms
        await stage.start("b", clock)
        await stage.go_on(10)

    story(scene, {"a", "b"})


def test_a_clock_an_hour_behind_after_three_hours_down_makes_it_later_by_an_hour_never_earlier() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.start("a")
        await stage.go_on(10)
        await stage.stop("a")
        await asyncio.sleep(3 * 3600)
        stage.broker.offset_ms = -HOUR_MS
        await stage.start("b")
        await stage.go_on(10)
        late = [error_ms for owner, error_ms in stage.errors if owner == "b"]
        assert late and all(-HOUR_MS - TOLERANCE_MS <= error_ms <= -HOUR_MS + TOLERANCE_MS for error_ms in late)

    run_virtually(run())


def test_claims_of_processes_that_die_at_once_do_not_hide_the_time_that_passed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start("a")
        await stage.go_on(10)
        await stage.stop("a")
        for number in range(5):
            await asyncio.sleep(600)
            before = len(stage.broker.logs[DECISIONS, 0])
            await stage.start(f"short{number}")
            while len(stage.broker.logs[DECISIONS, 0]) == before:
                await asyncio.sleep(0.0005)
            await stage.stop(f"short{number}")
        await stage.start("b")
        await stage.go_on(10)

    story(scene, {"a", "b"})


def test_a_journal_whose_last_record_is_an_hour_ahead_is_not_frozen() -> None:
    """An older version wrote it: time never goes back, so all that waits for time waited for an hour."""

    async def run() -> None:
        stage = Stage()
        stage.broker.offset_ms = HOUR_MS
        await stage.start("a", LoopClock(HOUR_MS))
        await stage.go_on(10)
        await stage.stop("a")
        stage.broker.offset_ms = 0
        await stage.start("b")
        begin = len(stage.broker.committed(DECISIONS, 0))
        await stage.go_on(20)
        times = [JournalRecord.decode(e.value or b"").now_ms for e in stage.broker.committed(DECISIONS, 0)[begin:]]
        assert times[-1] - times[1] >= 18_000 and times == sorted(times)

    run_virtually(run())
