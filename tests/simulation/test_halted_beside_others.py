"""Halted partitions, repairs and several processes: none takes a partition from one that works, or goes on from a state of its own."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.simulation.test_halted import Jammed, a_host, bad_record, ended, halts, started
from tests.support.counting_machine import PROJECT, CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import JobId, JobState, JobStatus, envelope_of
from trainhouse.events.model.repair import JournalRepaired
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import JournalRecord, record_hash
from trainhouse.events.wire.topics import CONTROL, DECISIONS, JOURNAL_REPAIRS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

Host = JournalHost[Counts]
SELDOM = 10**6


def named_host(
    broker: FakeBroker, name: str, machine: CountingMachine | None = None, store: MemoryStore | None = None, every: int = SELDOM
) -> Host:
    machine, store, log = machine or CountingMachine(), MemoryStore() if store is None else store, FakeLog(broker)
    snapshots = Snapshots(log, store, DECISIONS, machine, offload=call_directly, every_records=every)
    return JournalHost(HostSettings(DECISIONS, CONTROL, name, transactional=True), log, machine, snapshots, LoopClock())


def empty(broker: FakeBroker, entry: Entry, seq: int) -> None:
    """Has a record count as empty."""
    hash_ = record_hash(entry.value or b"")
    event = JournalRepaired(
        journal=DECISIONS, partition=0, offset=entry.offset, record_hash=hash_, seq=seq, error="e", reason="r", user="u", at_ms=1
    )
    broker.land(JOURNAL_REPAIRS, 0, event.key, encode(envelope_of(event, id="repair", source="test", now_ms=1)))


async def inputs(broker: FakeBroker, first: int, end: int, pause_s: float) -> None:
    for number in range(first, end):
        broker.land(CONTROL, 0, b"k", cancel(number))
        await asyncio.sleep(pause_s)


async def state_at_start(broker: FakeBroker, store: MemoryStore) -> Counts:
    host = named_host(broker, "late", store=store)
    task = await started(host, set())
    state = host.followers[0].folded.state
    await ended(task)
    return state


def owners(broker: FakeBroker) -> Counter[str]:
    return Counter(JournalRecord.decode(e.value).owner for e in broker.committed(DECISIONS, 0))


class Halving(CountingMachine):
    """A broken build: its ticks decide two things, and folding the second one raises."""

    def decide(self, state: Counts, now_ms: int, inputs: Any) -> Any:
        found = super().decide(state, now_ms, inputs)
        if any(i.offset is None for i in inputs):
            for job in ("job0", "job3"):
                found.append(JobStatus(job_id=JobId(job), status_seq=99, state=JobState.PENDING, reason="", project=PROJECT))
        return found

    def fold(self, state: Counts, now_ms: int, inputs: Any, decisions: Any) -> Counts:
        for decision in decisions:
            if isinstance(decision, JobStatus) and decision.job_id == "job3" and decision.status_seq == 99:
                raise KeyError("a fault of this build")
            super().fold(state, now_ms, [], [decision])
        state.ticks += sum(1 for i in inputs if i.offset is None)
        return state


def test_a_state_that_is_half_folded_is_in_no_snapshot() -> None:
    async def story(broker: FakeBroker) -> None:
        store = MemoryStore()
        sound, broken = named_host(broker, "sound"), named_host(broker, "broken", Halving(), store, every=20)
        tasks = [await started(sound, {0}), await started(broken, set())]
        await inputs(broker, 0, 30, 1)
        await ended(tasks[0])
        await inputs(broker, 30, 31, 8)  # the broken build takes over
        assert broken.followers[0].halted
        await ended(tasks[1])
        bad = broker.committed(DECISIONS, 0)[-1]
        empty(broker, bad, JournalRecord.decode(bad.value).seq)
        assert await state_at_start(broker, store) == await state_at_start(broker, MemoryStore())

    run_virtually(story(FakeBroker()))


class OneBuildAlone(CountingMachine):
    """Cannot fold what another build can."""

    def fold(self, state: Counts, now_ms: int, inputs: Any, decisions: Any) -> Counts:
        if any(isinstance(d, JobStatus) and d.reason == "input-7" for d in decisions):
            raise KeyError("this build alone")
        return super().fold(state, now_ms, inputs, decisions)


def test_a_process_that_has_folded_what_counts_as_empty_since_is_recovered_and_so_is_who_starts_from_its_snapshot() -> None:
    async def story(broker: FakeBroker) -> None:
        store = MemoryStore()
        good, bad = named_host(broker, "good", store=store, every=5), named_host(broker, "bad", OneBuildAlone())
        tasks = [await started(good, {0}), await started(bad, set())]
        await inputs(broker, 0, 10, 0.4)
        assert bad.followers[0].halted and not good.followers[0].halted
        records = [(e, JournalRecord.decode(e.value)) for e in broker.committed(DECISIONS, 0)]
        entry, record = next((e, r) for e, r in records if any(getattr(d, "reason", "") == "input-7" for d in r.decisions))
        kept = MemoryStore(store)
        empty(broker, entry, record.seq)
        await inputs(broker, 10, 40, 0.4)
        await asyncio.sleep(150)
        first, second = good.followers[0], bad.followers[0]
        assert not first.halted and not second.halted
        assert first.folded.last_hash == second.folded.last_hash and first.folded.state == second.folded.state
        for task in tasks:
            await ended(task)
        late = await state_at_start(broker, kept)
        assert late == await state_at_start(broker, MemoryStore()) and late.counts == first.folded.state.counts

    run_virtually(story(FakeBroker()))


async def without_its_archive(host: Host, fails: dict[str, bool]) -> None:
    whole = host._snapshots.recover

    async def recover(*args: Any) -> Any:
        if fails["store"]:
            raise OSError("the archive is away")
        return await whole(*args)

    host._snapshots.recover = recover  # type: ignore[method-assign]


def test_a_partition_that_is_recovered_is_not_taken_from_who_decides_it() -> None:
    async def story(broker: FakeBroker) -> None:
        fails = {"store": True}
        sound, late = named_host(broker, "sound"), named_host(broker, "late")
        tasks = [await started(sound, {0})]
        await inputs(broker, 0, 3, 1)
        await without_its_archive(late, fails)
        tasks.append(await started(late, set()))
        await inputs(broker, 3, 30, 1)
        assert late.followers[0].halted
        fails["store"] = False
        await inputs(broker, 30, 130, 1)
        assert not late.followers[0].halted and set(owners(broker)) == {"sound"}
        for task in tasks:
            await ended(task)

    run_virtually(story(FakeBroker()))


def test_a_start_beside_an_owner_that_takes_snapshots_finds_no_record_lost() -> None:
    class Slow(FakeLog):
        async def newest(self, topic: str, prefix: bytes) -> dict[bytes, bytes]:
            await asyncio.sleep(2)
            return await super().newest(topic, prefix)

    async def story(broker: FakeBroker) -> None:
        store = MemoryStore()
        task = await started(named_host(broker, "owner", store=store, every=10), {0})
        load = asyncio.create_task(inputs(broker, 0, 400, 0.1))
        await asyncio.sleep(20)
        log, machine = Slow(broker), CountingMachine()
        late: Host = JournalHost(
            HostSettings(DECISIONS, CONTROL, "late", transactional=True),
            log,
            machine,
            Snapshots(log, store, DECISIONS, machine, offload=call_directly),
            LoopClock(),
        )
        second = await started(late, set())
        assert not late.followers[0].halted
        load.cancel()
        await ended(second)
        await ended(task)

    run_virtually(story(FakeBroker()))


@pytest.mark.parametrize("away", [False, True])
def test_brokers_that_are_away_do_not_put_a_recovery_off(away: bool) -> None:
    async def story(broker: FakeBroker) -> None:
        host, log = a_host(broker)
        fails, gone = {"store": True}, False
        await without_its_archive(host, fails)
        task = await started(host, {0})

        async def hook(step: str) -> None:
            if gone and step == "whole":
                raise LogUnavailableError("away")

        log.hook = hook
        await asyncio.sleep(6)
        gone = away
        await asyncio.sleep(40)
        gone = fails["store"] = False
        await asyncio.sleep(70)
        assert not host.followers[0].halted
        await ended(task)

    run_virtually(story(FakeBroker()))


class JammedToo(Jammed):
    """The next version, with the same fault."""

    decide_version = 2


def test_two_versions_whose_ticks_both_fail_leave_the_partition_to_one_of_them() -> None:
    async def story(broker: FakeBroker) -> None:
        tasks = [await started(named_host(broker, "v1", Jammed()), {0}), await started(named_host(broker, "v2", JammedToo()), set())]
        await inputs(broker, 0, 1, 10)
        before = len(broker.committed(DECISIONS, 0))
        await asyncio.sleep(600)
        assert len(broker.committed(DECISIONS, 0)) - before < 25
        for task in tasks:
            await ended(task)

    run_virtually(story(FakeBroker()))


def test_reports_go_on_while_the_clock_of_the_day_is_set_back() -> None:
    async def story(broker: FakeBroker) -> None:
        host, _ = a_host(broker)
        task = await started(host, {0})
        await asyncio.sleep(3)
        broker.land(DECISIONS, 0, None, bad_record(host, 0))
        await asyncio.sleep(300)
        before = len(halts(broker))
        clock: Any = host._clock
        clock.offset_ms = -3_600_000
        await asyncio.sleep(600)
        assert len(halts(broker)) - before >= 9
        await ended(task)

    run_virtually(story(FakeBroker()))
