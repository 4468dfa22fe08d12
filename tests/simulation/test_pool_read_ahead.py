"""A pool that arrives is read in another thread, so that the owner's loop goes on meanwhile; what is broken is refused as without."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.core_world import admitted
from tests.support.fakes.journal_fakes import EPOCH_MS, FakeBroker, FakeLog, LoopClock, MemoryStore, run_virtually
from trainhouse.events import Event, MovePool, Order, PoolCreated, envelope_of
from trainhouse.events.model.handover import PoolPart, PoolPartReceived, PoolTaken
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.journal import InputRefused, JournalRecord
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.protocol.batch import Limits
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state import pool_records, pool_state
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

READS_S = 2.0


class Reads:
    """A thread in virtual time; `beside`: for each reading of a pool whether it was there, and not on the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside = False
        self.beside: list[bool] = []
        read = pool_records.pool_records

        def noted(data: bytes) -> pool_records.PoolRecords:
            self.beside.append(self.inside)
            return read(data)

        monkeypatch.setattr(pool_records, "pool_records", noted)

    async def offload(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.inside = True
        try:
            found = function(*arguments)
        finally:
            self.inside = False
        await asyncio.sleep(READS_S)
        return found


def land(broker: FakeBroker, number: int, partition: int, event: Event, order: Order | None = None) -> None:
    value = encode(envelope_of(event, id=f"asked-{number}", source="directory", now_ms=EPOCH_MS, order=order or Order(0, number, 0)))
    broker.land(CONTROL, partition, str(partition).encode(), value, HEADERS)


def host_of(broker: FakeBroker, reads: Reads, limits: Limits | None = None) -> JournalHost[ScheduleState]:
    machine, log = ScheduleMachine(), FakeLog(broker)
    snapshots = Snapshots(log, MemoryStore(), DECISIONS, machine, offload=reads.offload)
    settings = HostSettings(DECISIONS, CONTROL, "a", transactional=True, limits=limits or Limits())
    return JournalHost(settings, log, machine, snapshots, LoopClock())


@asynccontextmanager
async def running(broker: FakeBroker, reads: Reads, limits: Limits | None = None) -> AsyncIterator[JournalHost[ScheduleState]]:
    """A host that owns both partitions."""
    host = host_of(broker, reads, limits)
    task = asyncio.create_task(host.run())
    await host.ready.wait()
    host.on_assigned({0, 1})
    yield host
    task.cancel()


async def pool_of_ten_moved(broker: FakeBroker) -> None:
    """Makes a pool with ten jobs, and has it moved to the other partition."""
    land(broker, 1, 0, PoolCreated.model_validate({"pool": "default", "partition": 0}))
    for number in range(2, 12):
        land(broker, number, 0, admitted(f"job-{number}"))
    land(broker, 12, 0, MovePool.model_validate({"pool": "default", "to_partition": 1}))
    await decided(broker, PoolTaken)


async def decided(broker: FakeBroker, kind: type[Event]) -> JournalRecord:
    async with asyncio.timeout(60):
        while True:
            records = [JournalRecord.decode(e.value) for e in broker.committed(DECISIONS, 1)]
            for record in records:
                if any(isinstance(d, kind) for d in record.decisions):
                    return record
            await asyncio.sleep(0.1)


def test_an_arriving_pool_is_read_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)

    async def scene() -> None:
        broker = FakeBroker(partitions=2)
        async with running(broker, reads) as host:
            await pool_of_ten_moved(broker)
            state = host.followers[1].folded.state
            assert len(state.jobs) == 10 and state.pool_reader.kept is None

    run_virtually(scene())
    assert reads.beside == [True]


def test_what_cannot_be_read_ahead_is_refused_where_it_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)

    async def scene() -> None:
        broker = FakeBroker(partitions=2)
        async with running(broker, reads):
            about = {"pool": "default", "move": "m", "from_partition": 0, "to_partition": 1, "at_ms": EPOCH_MS, "number": 0, "of": 1}
            land(broker, 1, 1, PoolPart.model_validate(about | {"sha256": "0" * 64, "data": "no base64"}))
            [refused] = [d for d in (await decided(broker, InputRefused)).decisions if isinstance(d, InputRefused)]
            assert "cannot be unpacked" in refused.reason

    run_virtually(scene())


def test_a_pool_of_more_parts_than_a_record_takes_is_read_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    monkeypatch.setattr(pool_state, "MAX_PART_BYTES", 300)

    async def scene() -> None:
        broker = FakeBroker(partitions=2)
        async with running(broker, reads, Limits(batch_bytes=1500)) as host:
            await pool_of_ten_moved(broker)
            records = [JournalRecord.decode(e.value) for e in broker.committed(DECISIONS, 1)]
            assert sum(isinstance(d, PoolPartReceived) for r in records for d in r.decisions) > 2, "more than one record's inputs"
            assert len(host.followers[1].folded.state.jobs) == 10

    run_virtually(scene())
    assert reads.beside == [True]
