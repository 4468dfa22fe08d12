"""A snapshot holds the loop only while the state is taken hold of: it is written down in a thread, as the state was."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.support.core_world import Driver, admitted, exited, progress, registered, spec, started
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore
from trainhouse.events import Envelope, EventId, GangAllocated, JobSubmitted, PoolCreated
from trainhouse.events.wire.journal import ClockTicked, SnapshotPointer
from trainhouse.events.wire.topics import CONTROL, DECISIONS, DIRECTORY, SNAPSHOTS
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.settled_memory import MemorySettledJobs
from trainhouse.scheduler.core.protocol.journal import Folded
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.settled import Segment
from trainhouse.scheduler.stream.journal.follower import Follower, Unpublished
from trainhouse.scheduler.stream.journal.snapshot_blob import PIECE_BYTES, Taken, segments_named
from trainhouse.scheduler.stream.journal.snapshot_recovery import load
from trainhouse.scheduler.stream.journal.snapshots import Snapshots


def scheduler() -> Driver:
    d = Driver()
    d.feed(*(registered(n, slots=2) for n in "cab"))
    d.feed(*(admitted(f"j{i}", ranks=1 + i % 2, limits={"run_time_s": 10}) for i in range(8)))
    for gang in d.all(GangAllocated):
        d.feed(*(started(gang, p.node_id) for p in gang.placements), progress(gang, 1))
    return d


def test_a_captured_schedule_is_what_it_was() -> None:
    d = scheduler()
    before, later = d.machine.dump(d.state), d.machine.capture(d.state)
    gang = d.all(GangAllocated)[0]
    d.feed(exited(gang, 0, 1), ClockTicked(), registered("d", slots=2), admitted("j9"), ClockTicked())
    assert later() == before != d.machine.dump(d.state)
    assert d.machine.dump(d.machine.load(before)) == before


@pytest.mark.parametrize("size", [0, 1, 2, 3, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2])
def test_pieces_are_the_whole(size: int) -> None:
    state = bytes(n % 251 for n in range(size))
    blob, sha256, state_sha256 = Taken({"cursor": 7}, lambda: state, (b"u1", b"u2")).written(("a", "b"))
    raw = orjson.loads(blob)
    assert base64.b64decode(raw["state"]) == state and raw["cursor"] == 7
    assert [base64.b64decode(u) for u in raw["unpublished"]] == [b"u1", b"u2"] and segments_named(blob) == {"a", "b"}
    assert (sha256, state_sha256) == (hashlib.sha256(blob).hexdigest(), hashlib.sha256(state).hexdigest())
    assert "segments" not in orjson.loads(Taken({}, lambda: state, ()).written()[0]), "as before"


def directory(machine: DirectoryMachine, jobs: int) -> Any:
    events = [PoolCreated.model_validate({"pool": "p", "partition": 0})]
    submissions = [JobSubmitted.model_validate({"job_id": f"j{n}", "spec": spec(pool="p")}) for n in range(jobs)]
    inputs = [Input(n, Envelope(EventId(f"e{n}"), "test", event)) for n, event in enumerate([*events, *submissions])]
    inputs.append(Input(None, Envelope(EventId("tick"), "test", ClockTicked())))
    state = machine.initial(0)
    return machine.fold(state, 1, inputs, machine.decide(state, 1, inputs))


async def taken_once(machine: Any, state: Any, journal: str, meanwhile: Callable[[], None]) -> tuple[SnapshotPointer, MemoryStore]:
    """One snapshot with real threads; `meanwhile` runs on the loop before any of them is waited for."""
    broker, store = FakeBroker(), MemoryStore()
    snapshots = Snapshots(FakeLog(broker), store, journal, machine, every_records=1)
    follower = Follower(machine, CONTROL, Folded(0, state, seq=5, level=machine.fold_version), 9, Ownership("o", 2.0, 0.0), LoopClock())
    follower.last_offset = 8
    follower.unpublished.append(Unpublished(5, [], b"record"))
    await snapshots.after_record(follower)
    meanwhile()
    follower.unpublished.clear()
    async with asyncio.timeout(60):
        await asyncio.gather(*snapshots._tasks)
    [entry] = broker.committed(SNAPSHOTS, 0)
    return SnapshotPointer.decode(entry.value or b""), store


def noting(write: Callable[[], bytes], threads: list[int]) -> Callable[[], bytes]:
    def noted() -> bytes:
        threads.append(threading.get_ident())
        return write()

    return noted


@pytest.mark.parametrize("journal", [DECISIONS, DIRECTORY])
def test_states_are_written_down_in_a_thread_as_they_were(journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[int]()
    if journal == DECISIONS:
        d = scheduler()
        machine: Any = d.machine
        state: Any = d.state
    else:
        machine = DirectoryMachine(index=MemorySettledJobs(), settle_at=10)
        state = directory(machine, 25)
        state.put_job("hot", "p", b"entry")
    before, capture = machine.dump(state), type(machine).capture
    monkeypatch.setattr(type(machine), "capture", lambda self, s: noting(capture(self, s), threads))

    def change() -> None:
        (state.tokens if journal == DECISIONS else state.jobs).clear()
        state.put_pool("later", 0) if journal == DIRECTORY else state.claims.clear()

    pointer, store = asyncio.run(taken_once(machine, state, journal, change))
    assert threads and threading.get_ident() not in threads
    assert pointer.state_sha256 == hashlib.sha256(before).hexdigest()
    fresh = type(machine)()
    recovered = load(fresh, pointer, store[pointer.object_key], store)
    assert fresh.dump(recovered.folded.state) == before and recovered.unpublished == (b"record",)


class Sealing:
    """A segment that is not written yet."""

    def __init__(self, segment: Segment) -> None:
        self.sealed = False
        self._segment = segment

    def segment(self) -> Segment:
        assert self.sealed, "it would wait on the loop"
        return self._segment


def test_a_segment_in_the_making_puts_a_snapshot_off_and_keeps_nobody_waiting() -> None:
    class Slow(MemorySettledJobs):
        def seal(self, partition: int, number: int, jobs: Any) -> Any:
            made.append(Sealing(super().seal(partition, number, jobs)))
            return made[-1]

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        snapshots = Snapshots(FakeLog(broker), store, DIRECTORY, machine, every_records=1)
        follower = Follower(machine, CONTROL, Folded(0, state, seq=5, level=machine.fold_version), 9, Ownership("o", 2.0, 0.0), LoopClock())
        await snapshots.after_record(follower)
        assert not snapshots._tasks and not snapshots._saving
        made[0].sealed = True
        await snapshots.after_record(follower)
        async with asyncio.timeout(60):
            await asyncio.gather(*snapshots._tasks)
        assert len(broker.committed(SNAPSHOTS, 0)) == 1 and sum(".segments/" in key for key in store) == 1

    made = list[Sealing]()
    machine = DirectoryMachine(index=Slow(), settle_at=10)
    state = directory(machine, 25)
    asyncio.run(story())
