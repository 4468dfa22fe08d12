"""Partitions that are added to the scheduler's topics while it runs: taken into use once they are recorded, each by one owner."""

import asyncio

from tests.simulation.test_halted import ended, handled, started
from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import envelope_of
from trainhouse.events.model.topic_record import TopicRecorded
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.events.wire.topics import CONTROL, DECISIONS, TOPOLOGY
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots


def a_host(broker: FakeBroker, name: str, *, grows: bool = True) -> JournalHost[Counts]:
    log, machine = FakeLog(broker), CountingMachine()
    snapshots = Snapshots(log, MemoryStore(), DECISIONS, machine, offload=call_directly)
    return JournalHost(HostSettings(DECISIONS, CONTROL, name, transactional=True, grows=grows), log, machine, snapshots, LoopClock())


def record(broker: FakeBroker, partitions: int) -> None:
    event = TopicRecorded(topic=DECISIONS, partitions=partitions, was=broker.partitions, at_ms=1)
    broker.land(TOPOLOGY, 0, b"k", encode(envelope_of(event, id=f"r{partitions}", source="test", now_ms=1)))


def test_recorded_partitions_are_decided_on_and_others_are_left_alone() -> None:
    async def story(broker: FakeBroker) -> None:
        host, second = a_host(broker, "a"), a_host(broker, "b")
        tasks = [await started(host, {0, 1}), await started(second, set())]
        record(broker, 3)
        broker.partitions = 4  # one more than is recorded
        for number in range(8):
            broker.land(CONTROL, number % 4, b"k", cancel(number))
        await asyncio.sleep(20)
        # The group has given the new one to nobody: a stand-by decides.
        assert handled(host) == handled(second) == {0: 2, 1: 2, 2: 2}
        host.on_assigned({0})
        second.on_assigned({1, 2})
        for number in range(8, 16):
            broker.land(CONTROL, number % 4, b"k", cancel(number))
        await asyncio.sleep(20)
        assert handled(host) == handled(second) == {0: 4, 1: 4, 2: 4}
        assert {JournalRecord.decode(e.value).owner for e in broker.committed(DECISIONS, 2)[-1:]} == {"b"}
        record(broker, 4)
        await asyncio.sleep(20)
        assert handled(host) == handled(second) == {0: 4, 1: 4, 2: 4, 3: 4}
        late = a_host(broker, "late")
        tasks.append(await started(late, set()))
        assert handled(late) == handled(host)
        for task in tasks:
            await ended(task)

    run_virtually(story(FakeBroker(partitions=2)))


def test_a_journal_that_never_grows_takes_no_partition_in() -> None:
    async def story(broker: FakeBroker) -> None:
        host = a_host(broker, "a", grows=False)
        task = await started(host, {0})
        record(broker, 2)
        broker.partitions = 2
        broker.land(CONTROL, 1, b"k", cancel(1))
        await asyncio.sleep(60)
        assert set(host.followers) == {0} and not broker.committed(DECISIONS, 1)
        await ended(task)

    run_virtually(story(FakeBroker(partitions=1)))
