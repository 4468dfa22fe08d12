"""Calls of clients that never come back: a swallowed cancellation is repeated, and an owner that hangs ends its process."""

import asyncio
from collections.abc import Collection

import pytest

from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, FakePublisher, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.errors import BrokenInvariant, LogUnavailableError
from trainhouse.scheduler.core.protocol.journal import begin
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.stream.cancellation import ended
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.host import HUNG_TURNS, JournalHost
from trainhouse.scheduler.stream.journal.publishing import Publishing
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots


class HangingLog(FakeLog):
    """From `hang` on, nobody learns any more where the input ends."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__(broker)
        self.hang = False

    async def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        if self.hang and topic == CONTROL:
            await asyncio.Event().wait()
        return await super().ends(topic, partitions)


class DeafLog(FakeLog):
    """Its publishers cannot be opened, and opening one turns a cancellation into an ordinary error."""

    async def open_publisher(self, transactional_id: str | None, marks: str = "") -> FakePublisher:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            pass
        raise LogUnavailableError("away")


def a_host(log: FakeLog) -> JournalHost[Counts]:
    machine = CountingMachine()
    snapshots = Snapshots(log, MemoryStore(), DECISIONS, machine, offload=call_directly)
    return JournalHost(HostSettings(DECISIONS, CONTROL, "a", transactional=True), log, machine, snapshots, LoopClock())


def test_an_owner_that_hangs_ends_its_process_and_one_that_works_or_waits_does_not() -> None:
    async def run() -> None:
        broker = FakeBroker()
        log = HangingLog(broker)
        host = a_host(log)
        task = asyncio.create_task(host.run())
        await host.ready.wait()
        host.on_assigned({0})
        for number in range(3):
            broker.land(CONTROL, 0, b"k", cancel(number))
            await asyncio.sleep(2 * HUNG_TURNS)
            assert not task.done() and host.followers[0].folded.cursor == number
        log.hang = True
        host.offer(0, [s.entry for s in broker.logs[CONTROL, 0]])  # the feed asks where the input ends once the stream has nothing more
        await asyncio.sleep(HUNG_TURNS / 2)
        assert not task.done()
        with pytest.raises(BrokenInvariant, match=f"{DECISIONS}-0 hangs"):
            async with asyncio.timeout(2 * HUNG_TURNS):
                await task

    run_virtually(run())


def test_a_cancellation_that_was_swallowed_is_repeated() -> None:
    async def run() -> None:
        swallowed = 0

        async def stubborn() -> None:
            nonlocal swallowed
            while swallowed < 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    swallowed += 1
            await asyncio.Event().wait()

        async def fails() -> None:
            raise BrokenInvariant("a reason")

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await ended(task)
        assert task.cancelled() and swallowed == 2
        broken = asyncio.create_task(fails())
        await asyncio.sleep(0)
        with pytest.raises(BrokenInvariant, match="a reason"):
            await ended(broken)

    run_virtually(run())


def test_publishing_ends_although_its_client_swallowed_the_cancellation() -> None:
    async def run() -> None:
        machine, clock = CountingMachine(), LoopClock()
        follower: Follower[Counts] = Follower(machine, CONTROL, begin(machine, 0), 0, Ownership("a", 2.0, 0.0), clock)
        task = asyncio.create_task(Publishing(DeafLog(FakeBroker()), DECISIONS, follower, clock, transactional=True).run())
        await asyncio.sleep(1)
        task.cancel()  # once alone
        done, _ = await asyncio.wait([task], timeout=5)
        assert done and task.cancelled()

    run_virtually(run())
