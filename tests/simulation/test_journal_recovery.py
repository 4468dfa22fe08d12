"""Recovery from snapshots: what is refused, and that nothing is lost either way."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson
import pytest

from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import decode
from trainhouse.events.model.alert import AlertFired, AlertResolved
from trainhouse.events.wire.topics import ALERTS, CONTROL, DECISIONS, SNAPSHOTS, STATUS
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats, parse
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

INPUTS = 40


@dataclass
class Archive:
    """What lies before `end`, as an archive gives it."""

    broker: FakeBroker
    end: int

    def archived(self, journal: str, partition: int, start: int = 0) -> tuple[Iterator[Entry], int]:
        return iter([e for e in self.broker.committed(journal, partition) if start <= e.offset < self.end]), self.end


def host(
    broker: FakeBroker, store: MemoryStore, owner: str, machine: CountingMachine | None = None, archive: Archive | None = None
) -> JournalHost[Counts]:
    machine = machine or CountingMachine()
    log = FakeLog(broker)
    snapshots = Snapshots(log, store, DECISIONS, machine, every_records=10, offload=call_directly, archive=archive)
    return JournalHost(HostSettings(DECISIONS, CONTROL, owner, transactional=True), log, machine, snapshots, LoopClock())


async def a_life(broker: FakeBroker, store: MemoryStore, *, publishes: bool = True) -> None:
    """One process decides over INPUTS inputs, takes snapshots and ends."""
    first = host(broker, store, "first")

    async def never_publish(step: str) -> None:
        if step == "publish":
            await asyncio.Event().wait()

    if not publishes:
        assert isinstance(first._log, FakeLog)
        first._log.hook = never_publish
    task = asyncio.create_task(first.run())
    for number in range(INPUTS):
        broker.land(CONTROL, 0, b"k", cancel(number))
        await asyncio.sleep(0.05)
    await asyncio.sleep(3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert store and bool(broker.committed(STATUS, 0)) == publishes


async def recovered(
    broker: FakeBroker, store: MemoryStore, machine: CountingMachine | None = None, archive: Archive | None = None
) -> JournalHost[Counts]:
    again = host(broker, store, "again", machine, archive)
    task = asyncio.create_task(again.run())
    await asyncio.wait([task, asyncio.create_task(again.ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    task.cancel()
    return again


def test_a_snapshot_and_the_tail_give_the_state_although_the_log_begins_later() -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        assert store
        broker.starts[DECISIONS, 0] = 15  # archived and gone
        again = await recovered(broker, store)
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS

    run_virtually(run())


def drop_objects(broker: FakeBroker, store: MemoryStore) -> None:
    store.clear()


def damage_objects(broker: FakeBroker, store: MemoryStore) -> None:
    for name in store:
        store[name] = b"damaged"


def make_the_topic_anew(broker: FakeBroker, store: MemoryStore) -> None:
    broker.topic_ids[DECISIONS] = "another"


def lose_the_end(broker: FakeBroker, store: MemoryStore) -> None:
    del broker.logs[DECISIONS, 0][5:]


def alter_records(broker: FakeBroker, store: MemoryStore) -> None:
    broker.logs[DECISIONS, 0] = [broker.logs[CONTROL, 0][0]] * len(broker.logs[DECISIONS, 0])


@pytest.mark.parametrize("harm", [make_the_topic_anew, lose_the_end, alter_records])
def test_a_snapshot_of_another_journal_is_refused(harm: Callable[[FakeBroker, MemoryStore], None]) -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        harm(broker, store)
        entries = len(broker.logs[DECISIONS, 0])
        assert "SnapshotMismatch" in (await recovered(broker, store)).followers[0].halted
        assert len(broker.logs[DECISIONS, 0]) == entries, "it must refuse to append"

    run_virtually(run())


@pytest.mark.parametrize("harm", [drop_objects, damage_objects])
def test_an_unusable_object_costs_time_while_the_log_is_whole_and_is_refused_otherwise(
    harm: Callable[[FakeBroker, MemoryStore], None],
) -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        harm(broker, store)
        again = await recovered(broker, store)
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS
        broker.starts[DECISIONS, 0] = 15
        assert "SnapshotMismatch" in (await recovered(broker, store)).followers[0].halted

    run_virtually(run())


class NewFold(CountingMachine):
    """The same machine, a version later; its snapshots have another name for the ticks."""

    fold_version = 2
    formats = Formats({1: 1, 2: 2}, {1: lambda raw: {name: value for name, value in raw.items() if name != "ticks"} | {"t": raw["ticks"]}})

    def dump(self, state: Counts) -> bytes:
        return orjson.dumps({"format": 2, "counts": state.counts, "t": state.ticks, "frozen": state.frozen})

    def load(self, data: bytes) -> Counts:
        raw = self.formats.lifted(parse(data))
        return Counts(raw["counts"], raw["t"], raw["frozen"])


def test_a_newer_fold_lifts_a_snapshot_and_folds_what_follows_it_alone() -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        snapshots = Snapshots(FakeLog(broker), store, DECISIONS, NewFold(), offload=call_directly)
        before = await Snapshots(FakeLog(broker), store, DECISIONS, CountingMachine(), offload=call_directly).recover(0)
        found = await snapshots.recover(0)
        assert (found.snapshot_seq, found.position) == (before.snapshot_seq, before.position) and found.snapshot_seq
        assert found.folded.state == before.folded.state
        again = await recovered(broker, store, NewFold())
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS

    run_virtually(run())


def forget_the_snapshots(broker: FakeBroker, store: MemoryStore) -> None:
    broker.logs[SNAPSHOTS, 0].clear()


def keep_them(broker: FakeBroker, store: MemoryStore) -> None:
    pass


@pytest.mark.parametrize("machine", [CountingMachine, NewFold])
@pytest.mark.parametrize("harm", [drop_objects, damage_objects, forget_the_snapshots, keep_them])
def test_without_a_snapshot_that_fits_what_the_log_no_longer_holds_comes_from_the_archive(
    harm: Callable[[FakeBroker, MemoryStore], None], machine: type[CountingMachine]
) -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        harm(broker, store)
        broker.starts[DECISIONS, 0] = 15
        again = await recovered(broker, store, machine(), Archive(broker, 20))
        follower = again.followers[0]
        assert sum(follower.folded.state.counts.values()) == INPUTS
        assert follower.position == len(broker.logs[DECISIONS, 0])
        assert not follower.unpublished, "its effects were out"

    run_virtually(run())


def test_effects_that_were_not_out_are_published_by_who_recovers_from_the_archive() -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store, publishes=False)
        store.clear()
        broker.starts[DECISIONS, 0] = 12
        second = asyncio.create_task(host(broker, store, "second", archive=Archive(broker, 15)).run())
        await asyncio.sleep(5)
        second.cancel()
        assert len(broker.committed(STATUS, 0)) == INPUTS

    run_virtually(run())


def test_a_state_that_cannot_be_dumped_is_an_alert_and_the_owner_goes_on() -> None:
    """It crashed at each own record, for days."""

    class Undumpable(CountingMachine):
        def dump(self, state: Counts) -> bytes:
            if sum(state.counts.values()) < INPUTS // 2:
                raise TypeError("Integer exceeds 64-bit range")
            return super().dump(state)

    async def story() -> tuple[FakeBroker, MemoryStore]:
        broker, store = FakeBroker(), MemoryStore()
        only = host(broker, store, "only", Undumpable())
        task = asyncio.create_task(only.run())
        for number in range(INPUTS):
            broker.land(CONTROL, 0, b"k", cancel(number))
            await asyncio.sleep(0.5)
        await asyncio.sleep(10)
        assert not task.done() and sum(only.followers[0].folded.state.counts.values()) == INPUTS
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return broker, store

    broker, store = run_virtually(story())
    told = [decode(e.value).event for e in broker.committed(ALERTS, 0)]
    assert [type(e) for e in told] == [AlertFired, AlertResolved], "once each, however often it failed"
    assert isinstance(told[0], AlertFired) and "64-bit" in told[0].summary and told[0].key == f"{DECISIONS}-0"
    assert store


def test_a_log_that_lost_its_beginning_without_any_snapshot_is_refused() -> None:
    async def run() -> None:
        broker = FakeBroker()
        broker.starts[DECISIONS, 0] = 3
        assert "archive" in (await recovered(broker, MemoryStore())).followers[0].halted

    run_virtually(run())


def test_effects_that_were_not_out_at_the_snapshot_are_published_after_it() -> None:
    async def run() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store, publishes=False)
        broker.starts[DECISIONS, 0] = 12
        second = asyncio.create_task(host(broker, store, "second").run())
        await asyncio.sleep(5)
        second.cancel()
        assert len(broker.committed(STATUS, 0)) == INPUTS

    run_virtually(run())
