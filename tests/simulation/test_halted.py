"""A partition whose journal cannot be folded, or whose owner fails, stops alone; all others go on, and a person is alerted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry

from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import envelope_of
from trainhouse.events.model.repair import HaltFault, JournalRepaired, PartitionHalted
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.journal import record_hash
from trainhouse.events.wire.topics import CONTROL, DECISIONS, JOURNAL_REPAIRS, VERDICTS
from trainhouse.scheduler.core.protocol.batch import Proposer
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.metrics import JournalMeters

Host = JournalHost[Counts]


def a_host(broker: FakeBroker, registry: CollectorRegistry | None = None, machine: CountingMachine | None = None) -> tuple[Host, FakeLog]:
    log, machine = FakeLog(broker), machine or CountingMachine()
    snapshots = Snapshots(log, MemoryStore(), DECISIONS, machine, offload=call_directly)
    settings = HostSettings(DECISIONS, CONTROL, "a", transactional=True)
    return JournalHost(settings, log, machine, snapshots, LoopClock(), meters=JournalMeters("scheduler", registry)), log


def run(story: Callable[[FakeBroker], Awaitable[Any]], partitions: int = 2) -> Any:
    return run_virtually(story(FakeBroker(partitions=partitions)))  # type: ignore[arg-type]


async def started(host: Host, partitions: set[int]) -> "asyncio.Task[None]":
    task = asyncio.create_task(host.run())
    await host.ready.wait()
    host.on_assigned(partitions)
    return task


async def ended(task: "asyncio.Task[None]") -> None:
    assert not task.done(), task.exception()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def halts(broker: FakeBroker) -> list[PartitionHalted]:
    events = [decode(e.value, HEADERS).event for p in range(broker.partitions) for e in broker.committed(VERDICTS, p)]
    return [e for e in events if isinstance(e, PartitionHalted)]


def handled(host: Host) -> dict[int, int]:
    return {p: sum(f.folded.state.counts.values()) for p, f in host.followers.items()}


def bad_record(host: Host, partition: int) -> bytes:
    """The record that is due, with a decision that no program of this version can read."""
    folded = host.followers[partition].folded
    record = Proposer(host._machine, "b").claim(folded, 0)
    return record.value.replace(b'"decisions":[]', b'"decisions":[{"type":"trainhouse.job.status.v1","data":{"job_id":7}}]')


def test_a_record_that_cannot_be_folded_stops_its_partition_alone_until_it_is_repaired() -> None:
    async def story(broker: FakeBroker) -> None:
        registry = CollectorRegistry()
        host, _ = a_host(broker, registry)
        task = await started(host, {0, 1})
        for number in range(10):
            broker.land(CONTROL, number % 2, b"k", cancel(number))
        await asyncio.sleep(3)
        assert handled(host) == {0: 5, 1: 5}
        bad = bad_record(host, 1)
        offset = broker.land(DECISIONS, 1, None, bad).entry.offset
        for number in range(10, 20):
            broker.land(CONTROL, number % 2, b"k", cancel(number))
            await asyncio.sleep(1)
        assert handled(host)[0] == 10 and host.followers[1].halted and not host.followers[0].halted
        halted = {"partition": "1", "fault": "STOPPED"}
        assert registry.get_sample_value("trainhouse_scheduler_partition_halted", halted) == 1
        await asyncio.sleep(300)
        found = halts(broker)
        assert {(e.partition, e.fault) for e in found} == {(1, HaltFault.STOPPED)} and 4 <= len(found) <= 7
        assert f"offset {offset}" in found[-1].reason and "job_id" in found[-1].reason
        # A new start finds the same, and the other partition decides.
        second, _ = a_host(broker)
        again = await started(second, {0, 1})
        await asyncio.sleep(5)
        assert second.followers[1].halted and handled(second)[0] == 10
        await ended(again)

        repair = JournalRepaired(
            journal=DECISIONS,
            partition=1,
            offset=offset,
            record_hash=record_hash(bad),
            seq=host.followers[1].folded.seq + 1,
            error="job_id",
            reason="written by a broken build",
            user="ops",
            at_ms=1,
        )
        broker.land(JOURNAL_REPAIRS, 0, repair.key, encode(envelope_of(repair, id="repair", source="test", now_ms=1)))
        await asyncio.sleep(20)
        assert handled(host) == {0: 10, 1: 10} and not host.followers[1].halted
        assert registry.get_sample_value("trainhouse_scheduler_partition_halted", halted) == 0
        told = len(halts(broker))
        await asyncio.sleep(300)
        assert len(halts(broker)) == told
        await ended(task)
        third, _ = a_host(broker)
        again = await started(third, {0, 1})
        await asyncio.sleep(5)
        assert handled(third) == {0: 10, 1: 10}
        await ended(again)

    run(story)


def test_an_owner_that_fails_stops_its_partition_alone_and_is_tried_again() -> None:
    """Inputs that the brokers lost: nothing is skipped, and the other pools do not pay for it."""

    async def story(broker: FakeBroker) -> None:
        host, log = a_host(broker)
        task = await started(host, {0, 1})
        broker.land(CONTROL, 1, b"k", cancel(0))
        await asyncio.sleep(2)
        broken = True
        whole = log.open_tail

        async def open_tail(topic: str, positions: Any) -> Any:
            if broken and topic == CONTROL and 1 in positions:
                raise ValueError("no such offset")
            return await whole(topic, positions)

        log.open_tail = open_tail  # type: ignore[method-assign]
        host.on_assigned({0, 1})  # the feed reads the topic itself
        host.feeds[1]._tail = None
        for number in range(20):
            broker.land(CONTROL, number % 2, b"k", cancel(number))
            await asyncio.sleep(1)
        assert handled(host)[0] == 10 and handled(host)[1] < 11
        found = halts(broker)
        assert found and {(e.partition, e.fault) for e in found} == {(1, HaltFault.STOPPED)} and "no such offset" in found[0].reason
        broken = False
        await asyncio.sleep(60)
        assert handled(host) == {0: 10, 1: 11}
        await ended(task)

    run(story)


class Jammed(CountingMachine):
    """Each tick raises, also while placement is frozen."""

    def decide(self, state: Counts, now_ms: int, inputs: Any) -> Any:
        if any(i.offset is None for i in inputs):
            raise ZeroDivisionError("no nodes")
        return super().decide(state, now_ms, inputs)


def test_a_frozen_pool_alerts_again_and_again_and_appends_nothing_meanwhile() -> None:
    async def story(broker: FakeBroker) -> None:
        host, _ = a_host(broker, machine=Jammed())
        task = await started(host, {0})
        broker.land(CONTROL, 0, b"k", cancel(0))
        await asyncio.sleep(5)
        before = len(broker.committed(DECISIONS, 0))
        await asyncio.sleep(600)
        assert len(broker.committed(DECISIONS, 0)) - before <= 11  # at most the sign of life of each minute
        found = halts(broker)
        assert {(e.fault, e.pools) for e in found} == {(HaltFault.PLACEMENT_FROZEN, ("counted",))} and len(found) >= 9
        assert "the policy is broken" in found[-1].reason
        broker.land(CONTROL, 0, b"k", cancel(1))
        await asyncio.sleep(5)
        assert handled(host)[0] == 2  # inputs go on
        await ended(task)

    run(story, partitions=1)
