"""Recovery takes the newest snapshot that can be used, by seq, whatever was written when; the last three stay."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from tests.simulation.test_journal_recovery import INPUTS, Archive, a_life, host, recovered
from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events.wire.journal import SnapshotPointer, pointer_prefix
from trainhouse.events.wire.topics import CONTROL, DECISIONS, SNAPSHOTS
from trainhouse.scheduler.core.errors import SnapshotMismatch
from trainhouse.scheduler.core.protocol.snapshot_choice import KEPT, MOST_DELETED, folder, object_key, pointers_of
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshot_recovery import Recovered
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

PAUSE_S = 30.0
TOPIC_ID = f"id-of-{DECISIONS}"


def live(broker: FakeBroker) -> list[SnapshotPointer]:
    """The pointers that are not deleted, the newest by seq first."""
    found = {e.key: e.value for e in broker.committed(SNAPSHOTS, 0) if e.key is not None}
    values = {key: value for key, value in found.items() if value is not None}
    return pointers_of(values, DECISIONS, 0).newest_first(TOPIC_ID)


def point(broker: FakeBroker, pointer: SnapshotPointer) -> None:
    broker.land(SNAPSHOTS, 0, pointer.key, pointer.encode())


async def recover(broker: FakeBroker, store: MemoryStore, archive: Archive | None = None) -> Recovered[Counts]:
    snapshots = Snapshots(FakeLog(broker), store, DECISIONS, CountingMachine(), offload=call_directly, archive=archive)
    return await snapshots.recover(0)


def test_a_pointer_that_a_paused_owner_writes_late_keeps_no_process_from_starting() -> None:
    """It was the newest record of its key: it pointed before the trimmed log, and each start ended with SnapshotMismatch."""

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        loop, paused_until_s = asyncio.get_running_loop(), [0.0]
        paused, second = host(broker, store, "paused"), host(broker, store, "second")

        async def pause_before_the_pointer(step: str) -> None:
            if step == "send" and not paused_until_s[0]:
                paused_until_s[0] = loop.time() + PAUSE_S
                await asyncio.sleep(PAUSE_S)
            elif paused_until_s[0]:
                await asyncio.Event().wait()  # it writes its pointer, and dies

        assert isinstance(paused._log, FakeLog)
        paused._log.hook = pause_before_the_pointer
        tasks = [asyncio.create_task(paused.run())]
        await paused.ready.wait()
        paused.on_assigned({0})
        tasks.append(asyncio.create_task(second.run()))
        for number in range(INPUTS):
            broker.land(CONTROL, 0, b"k", cancel(number))
            await asyncio.sleep(0.5)
        newest = live(broker)[0]
        assert paused_until_s[0] > loop.time(), "it must still be paused"
        broker.starts[DECISIONS, 0] = newest.offset
        tasks[1].cancel()
        await asyncio.sleep(PAUSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        last = SnapshotPointer.decode(broker.committed(SNAPSHOTS, 0)[-1].value or b"")
        assert last.seq < newest.seq and last.offset < newest.offset, "the late pointer must come last"
        again = await recovered(broker, store)
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS

    run_virtually(story())


def lose_the_object(broker: FakeBroker, store: MemoryStore) -> None:
    del store[live(broker)[0].object_key]


def truncate_the_object(broker: FakeBroker, store: MemoryStore) -> None:
    key = live(broker)[0].object_key
    store[key] = store[key][:-20]


def write_another_object(broker: FakeBroker, store: MemoryStore) -> None:
    newest, older = live(broker)[:2]
    store[newest.object_key] = store[older.object_key]


def of_another_fold(broker: FakeBroker, store: MemoryStore) -> None:
    newest = live(broker)[0]
    point(broker, replace(newest, fold_version=newest.fold_version + 1))


def of_an_older_fold(broker: FakeBroker, store: MemoryStore) -> None:
    newest = live(broker)[0]
    point(broker, replace(newest, fold_version=newest.fold_version - 1))


def of_another_format(broker: FakeBroker, store: MemoryStore) -> None:
    newest = live(broker)[0]
    store[newest.object_key] = blob = orjson.dumps({"format": 99})
    point(broker, replace(newest, sha256=hashlib.sha256(blob).hexdigest()))


@pytest.mark.parametrize(
    "harm", [lose_the_object, truncate_the_object, write_another_object, of_another_fold, of_an_older_fold, of_another_format]
)
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_snapshot_that_cannot_be_used_is_passed_over_for_the_next_older_one(
    harm: Callable[[FakeBroker, MemoryStore], None], trimmed: bool
) -> None:
    """Where the log was trimmed past the older one, the archive has what is between."""

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest, older = live(broker)[:2]
        harm(broker, store)
        archive = None
        if trimmed:
            assert older.offset < newest.offset
            broker.starts[DECISIONS, 0] = newest.offset
            with pytest.raises(SnapshotMismatch, match="archive"):
                await recover(broker, store)
            archive = Archive(broker, newest.offset + 3)
        found = await recover(broker, store, archive)
        assert found.snapshot_seq == older.seq
        assert found.position == (newest.offset + 3 if trimmed else older.offset + 1)
        again = await recovered(broker, store, archive=archive)
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS
        assert not again.followers[0].unpublished, "its effects were out"

    run_virtually(story())


def test_effects_that_were_not_out_are_kept_over_the_gap_that_the_archive_fills() -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store, publishes=False)
        newest = live(broker)[0]
        lose_the_object(broker, store)
        broker.starts[DECISIONS, 0] = newest.offset
        again = await recovered(broker, store, archive=Archive(broker, newest.offset + 1))
        assert sum(len(u.effects) for u in again.followers[0].unpublished) == 2 * INPUTS

    run_virtually(story())


@pytest.mark.parametrize("value", [b"junk", b"{}", b"[]", b"null", b"\xff\x00", b"7"])
def test_a_pointer_that_is_junk_is_passed_over(value: bytes) -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest, older = live(broker)[:2]
        prefix = pointer_prefix(DECISIONS, 0)
        for key in (prefix, prefix + b"/", prefix + b"/x/\xff", newest.key):
            broker.land(SNAPSHOTS, 0, key, value)
        assert (await recover(broker, store)).snapshot_seq == older.seq
        for pointer in live(broker):
            broker.land(SNAPSHOTS, 0, pointer.key, value)
        again = await recovered(broker, store)
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS, "from the journal's beginning"

    run_virtually(story())


@pytest.mark.parametrize("part", ["seq", "offset", "partition"])
@pytest.mark.parametrize("given", ["1", None, -1, 1.5, True])
def test_a_pointer_with_a_part_of_another_kind_is_junk(part: str, given: object) -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest, older = live(broker)[:2]
        broker.land(SNAPSHOTS, 0, newest.key, orjson.dumps(orjson.loads(newest.encode()) | {part: given}))
        assert (await recover(broker, store)).snapshot_seq == older.seq

    run_virtually(story())


def test_a_pointer_of_an_older_version_is_read() -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest = live(broker)[0]
        broker.logs[SNAPSHOTS, 0].clear()
        broker.land(SNAPSHOTS, 0, pointer_prefix(DECISIONS, 0), newest.encode())
        assert (await recover(broker, store)).snapshot_seq == newest.seq

    run_virtually(story())


def test_a_late_pointer_of_a_former_topic_changes_nothing() -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest = live(broker)[0]
        point(broker, replace(newest, topic_id="former", seq=newest.seq + 1_000, offset=newest.offset + 1_000))
        assert (await recover(broker, store)).snapshot_seq == newest.seq

    run_virtually(story())


def test_a_store_that_does_not_answer_costs_time_while_the_log_is_whole() -> None:
    class Away(MemoryStore):
        def get(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
            raise ConnectionError("the store is away")

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        again = await recovered(broker, Away(store))
        assert sum(again.followers[0].folded.state.counts.values()) == INPUTS

    run_virtually(story())


def test_the_last_three_snapshots_stay_and_what_lies_before_is_deleted_pointer_first() -> None:
    class Watched(MemoryStore):
        def delete(self, key: str) -> None:
            assert key not in {p.object_key for p in live(broker)}, "a pointer still names it"
            super().delete(key)

    broker, store = FakeBroker(), Watched()
    prefix = folder(DECISIONS, 0)
    left = {
        f"{prefix}{1:016d}.json": "of an older version",
        object_key(DECISIONS, 0, 2, TOPIC_ID, "ab" * 32): "its pointer was never written",
    }
    stays = {
        object_key(DECISIONS, 0, 10**9, TOPIC_ID, "ab" * 32): "its pointer may be under way",
        object_key(DECISIONS, 0, 2, "another-cluster's", "ab" * 32): "of another topic",
        f"snapshots/{DECISIONS}/1/{1:016d}.json": "of another partition",
        f"{prefix}notes.txt": "something else",
    }
    store.update({key: value.encode() for key, value in (left | stays).items()})

    async def story() -> None:
        await a_life(broker, store)
        pointers = live(broker)
        written = {e.key for e in broker.committed(SNAPSHOTS, 0)}
        assert len(written) > KEPT == len(pointers), "there were more"
        assert set(store) == {p.object_key for p in pointers} | set(stays)
        assert [p.seq for p in pointers] == sorted((p.seq for p in pointers), reverse=True)

    run_virtually(story())


def test_junk_and_late_pointers_are_deleted_too() -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await a_life(broker, store)
        newest = live(broker)[0]
        prefix = pointer_prefix(DECISIONS, 0)
        broker.land(SNAPSHOTS, 0, prefix + b"/x", b"junk")
        point(broker, replace(newest, seq=1, offset=1, object_key=object_key(DECISIONS, 0, 1, TOPIC_ID, "00")))
        point(broker, replace(newest, seq=2, topic_id="former", object_key="checkpoints/somebody's"))
        store["checkpoints/somebody's"] = b"tensor"
        await another_life(broker, store)
        found = {e.key: e.value for e in broker.committed(SNAPSHOTS, 0)}
        assert {key for key, value in found.items() if value} == {p.key for p in live(broker)}
        assert len(live(broker)) == KEPT and "checkpoints/somebody's" in store

    run_virtually(story())


def test_a_pass_deletes_a_bounded_number_and_the_next_ones_the_rest() -> None:
    class Timed(MemoryStore):
        """Notes when each object is deleted."""

        def delete(self, key: str) -> None:
            at_s.append(round(asyncio.get_running_loop().time(), 3))
            super().delete(key)

    at_s: list[float] = []

    async def story() -> None:
        broker, store = FakeBroker(), Timed()
        old = [f"{folder(DECISIONS, 0)}{seq:016d}.json" for seq in range(1, 11)]
        store.update(dict.fromkeys([*old, *(object_key(DECISIONS, 0, 0, TOPIC_ID, f"{n:016x}") for n in range(2 * MOST_DELETED))], b"old"))
        await a_life(broker, store)
        await another_life(broker, store)
        await another_life(broker, store)
        assert len(store) == KEPT
        assert len(at_s) > 2 * MOST_DELETED and max(at_s.count(at) for at in set(at_s)) <= MOST_DELETED

    run_virtually(story())


@pytest.mark.parametrize("failing", ["delete", "keys"])
def test_a_snapshot_that_cannot_be_deleted_stops_nothing(failing: str) -> None:
    class Stubborn(MemoryStore):
        pass

    def refuse(*_: object) -> None:
        raise PermissionError("AccessDenied")

    setattr(Stubborn, failing, refuse)

    async def story() -> None:
        broker, store = FakeBroker(), Stubborn()
        await a_life(broker, store)
        assert len(set(dict.keys(store))) > KEPT
        assert (await recover(broker, store)).snapshot_seq == live(broker)[0].seq

    run_virtually(story())


async def another_life(broker: FakeBroker, store: MemoryStore) -> None:
    """A later process takes over, decides on enough inputs to take a few snapshots, and ends."""
    log = FakeLog(broker)
    snapshots = Snapshots(log, store, DECISIONS, CountingMachine(), every_records=10, offload=call_directly)
    later: JournalHost[Counts] = JournalHost(
        HostSettings(DECISIONS, CONTROL, f"later-{len(broker.logs[DECISIONS, 0])}", transactional=True),
        log,
        CountingMachine(),
        snapshots,
        LoopClock(),
    )
    task = asyncio.create_task(later.run())
    for number in range(60):
        broker.land(CONTROL, 0, b"k", cancel(number))
        await asyncio.sleep(1)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
