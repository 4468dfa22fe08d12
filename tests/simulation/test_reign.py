"""Deciding and publishing are one reign: when either ends, the reign does, and the next one does both."""

import asyncio

from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events.wire.topics import CONTROL, DECISIONS, STATUS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

INPUTS = 100


def host(broker: FakeBroker, owner: str) -> tuple[JournalHost[Counts], FakeLog]:
    log = FakeLog(broker)
    snapshots = Snapshots(log, MemoryStore(), DECISIONS, CountingMachine(), offload=call_directly)
    return JournalHost(HostSettings(DECISIONS, CONTROL, owner, transactional=True), log, CountingMachine(), snapshots, LoopClock()), log


def published(broker: FakeBroker) -> int:
    return len(broker.committed(STATUS, 0))


def test_an_owner_that_was_fenced_and_assigned_again_at_once_publishes_again() -> None:
    """It went on deciding for ever without a publisher: 5 of 106 effects came out."""

    async def story() -> int:
        broker = FakeBroker()
        only, log = host(broker, "only")
        task = asyncio.create_task(only.run())
        await only.ready.wait()
        only.on_assigned({0})

        async def slow_append(step: str) -> None:
            if step == "appended":
                await asyncio.sleep(0.5)

        for number in range(INPUTS):
            broker.land(CONTROL, 0, b"k", cancel(number))
            await asyncio.sleep(0.05)
            if number == 10:
                log.hook = slow_append
                await asyncio.sleep(0.1)
                broker.fence(f"{DECISIONS}-0")  # another process opened the partition's publisher, and died
                broker.land(CONTROL, 0, b"k", cancel(INPUTS))
                await asyncio.sleep(0.3)
                only.on_assigned({0})
                log.hook = None
        await asyncio.sleep(5)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return published(broker)

    assert run_virtually(story()) == INPUTS + 1


def test_an_owner_whose_publisher_is_refused_for_long_leaves_the_partition_to_another() -> None:
    """One process reaches the partition's journal, but no coordinator of transactions: another one that does must get its turn."""

    async def story() -> tuple[int, int]:
        broker = FakeBroker()
        lame, lame_log = host(broker, "lame")
        sound, _ = host(broker, "sound")

        async def refused(step: str) -> None:
            if step == "fence":
                raise LogUnavailableError("no coordinator")

        lame_log.hook = refused
        tasks = [asyncio.create_task(lame.run()), asyncio.create_task(sound.run())]
        await lame.ready.wait()
        await sound.ready.wait()
        lame.on_assigned({0})
        sound.on_assigned(set())
        for number in range(INPUTS):
            broker.land(CONTROL, 0, b"k", cancel(number))
            await asyncio.sleep(0.2)
        await asyncio.sleep(10)
        for task in tasks:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return published(broker), sum(lame.followers[0].folded.state.counts.values())

    out, counted = run_virtually(story())
    assert (out, counted) == (INPUTS, INPUTS)
