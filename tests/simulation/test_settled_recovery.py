"""Intake is killed anywhere between the cut of a segment, its files, its object, the snapshot and the pointer: it recovers exactly."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.test_journal_recovery import Archive
from tests.support.core_world import spec
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import Event, JobSubmitted, PoolCreated, encode, envelope_of
from trainhouse.events.model.repair import JournalRepaired
from trainhouse.events.model.routing import JobDirected, JobsSettled
from trainhouse.events.wire.journal import JournalRecord, SnapshotPointer, record_hash
from trainhouse.events.wire.topics import ADMISSION, CONTROL, DIRECTORY, JOURNAL_REPAIRS, SNAPSHOTS
from trainhouse.scheduler.core.errors import StateLost
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import DirectoryState
from trainhouse.scheduler.core.intake.settled_memory import MemorySettledJobs
from trainhouse.scheduler.core.protocol.settled import SettledJobs
from trainhouse.scheduler.core.protocol.snapshot_choice import pointers_of, segments_folder
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshot_recovery import load
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.settled.settled_files import SettledFiles
from trainhouse.scheduler.stream.settled.settled_index import SettledIndex

JOBS, SETTLE_AT, EVERY_RECORDS, TOPIC_ID = 30, 4, 3, f"id-of-{DIRECTORY}"


class KilledError(BaseException):
    """The process is no more."""


class Here(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(fn(*args, **kwargs))
        return done


class Process:
    """An intake that ends at step `dies_at` of those that leave something behind; `steps`: what they were."""

    def __init__(self, broker: FakeBroker, store: MemoryStore, folder: Path, dies_at: int | None = None, archive: Any = None) -> None:
        self.steps, self._dies_at = list[str](), dies_at
        self.log = FakeLog(broker, hook=self._async_step)
        process = self

        class Store(MemoryStore):
            """The shared store, as this process reaches it."""

            def get(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
                return store.get(key)

            def keys(self, prefix: str = "", start_after: str = "") -> Any:  # type: ignore[override]
                return store.keys(prefix, start_after)

            def put(self, key: str, data: bytes) -> None:
                process.step(f"put {'segment' if '.segments/' in key else 'snapshot'}")
                store.put(key, data)

            def delete(self, key: str) -> None:
                process.step("delete")
                store.delete(key)

        self.index = SettledIndex(folder, cache_bytes=1 << 20, writer=Here())
        machine = DirectoryMachine(1, self.index, SETTLE_AT)
        snapshots = Snapshots(self.log, Store(), DIRECTORY, machine, every_records=EVERY_RECORDS, offload=call_directly, archive=archive)
        settings = HostSettings(DIRECTORY, ADMISSION, f"owner-{dies_at}", transactional=False)
        self.host: JournalHost[DirectoryState] = JournalHost(settings, self.log, machine, snapshots, LoopClock())
        self.task = asyncio.create_task(self.host.run())

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self._dies_at is not None and len(self.steps) > self._dies_at:
            self.log.dead = True
            self.task.cancel()
            raise KilledError

    async def _async_step(self, name: str) -> None:
        if name in ("append", "send"):
            try:
                self.step(name)
            except KilledError:
                await asyncio.Event().wait()

    async def end(self) -> None:
        self.log.dead = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.index.close()

    @property
    def state(self) -> DirectoryState:
        return self.host.followers[0].folded.state


@pytest.fixture(autouse=True)
def files_that_die(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """The process whose files' writes count as steps."""
    living, write = list[Process](), SettledFiles._write

    def counted(self: SettledFiles, batch: Any) -> None:
        if living:
            living[-1].step("write")
        write(self, batch)

    monkeypatch.setattr(SettledFiles, "_write", counted)
    return living


def submitted(broker: FakeBroker, numbers: range, again: str = "") -> None:
    for n in numbers:
        event: Event = JobSubmitted.model_validate({"job_id": f"job-{n}", "spec": spec(pool="p", seed=n)})
        broker.land(ADMISSION, 0, b"k", encode(envelope_of(event, id=f"s-{n}{again}", source="test", now_ms=0)))


def with_pool(broker: FakeBroker) -> None:
    event = PoolCreated.model_validate({"pool": "p", "partition": 0})
    broker.land(ADMISSION, 0, b"k", encode(envelope_of(event, id="pool", source="test", now_ms=0)))


async def some_work(broker: FakeBroker, first: int, process: Process) -> None:
    for n in range(first, first + JOBS):
        submitted(broker, range(n, n + 1))
        await asyncio.sleep(0.05)
        if process.log.dead:
            return
    await asyncio.sleep(1)


def folded_whole(broker: FakeBroker, index: SettledJobs | None = None, emptied: frozenset[str] = frozenset()) -> bytes:
    """The state by the journal alone."""
    from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes

    machine = DirectoryMachine(1, index or MemorySettledJobs(), SETTLE_AT)
    folded = begin(machine, 0)
    for entry in broker.committed(DIRECTORY, 0):
        folded, _ = fold_bytes(machine, folded, entry.value, emptied=emptied)
    return machine.dump(folded.state)


def live(broker: FakeBroker) -> list[SnapshotPointer]:
    found = {e.key: e.value for e in broker.committed(SNAPSHOTS, 0) if e.key is not None}
    return pointers_of({k: v for k, v in found.items() if v is not None}, DIRECTORY, 0).newest_first(TOPIC_ID)


def judge(broker: FakeBroker, store: MemoryStore, state: DirectoryState, jobs: int, emptied: frozenset[str] = frozenset()) -> None:
    """The state is the journal's, each job was admitted once, and each remaining snapshot can be loaded from objects alone."""
    assert DirectoryMachine(1).dump(state) == folded_whole(broker, emptied=emptied)
    assert all(state.pool_of(f"job-{n}") == "p" for n in range(jobs)) and state.pool_of("another") is None
    assert broker.committed(CONTROL, 0)
    for pointer in live(broker)[:3]:
        machine = DirectoryMachine(1)
        recovered = load(machine, pointer, store[pointer.object_key], store)
        assert hashlib.sha256(machine.dump(recovered.folded.state)).hexdigest() == pointer.state_sha256


def decisions(broker: FakeBroker) -> list[Event]:
    seen, found = 0, list[Event]()
    for entry in broker.committed(DIRECTORY, 0):
        record = JournalRecord.decode(entry.value or b"")
        if record.seq == seen + 1:
            seen += 1
            found += record.decisions
    return found


async def killed_once(files: list[Process], folder: Path, dies_at: int | None, same_folder: bool) -> list[str]:
    broker, store = FakeBroker(), MemoryStore()
    with_pool(broker)
    first = Process(broker, store, folder / "first", dies_at)
    files.append(first)
    await first.host.ready.wait()
    first.host.on_assigned({0})
    await some_work(broker, 0, first)
    files.clear()
    await first.end()
    second = Process(broker, store, folder / ("first" if same_folder else "second"))
    await second.host.ready.wait()
    second.host.on_assigned({0})
    submitted(broker, range(JOBS))
    await some_work(broker, JOBS, second)
    submitted(broker, range(2 * JOBS), again="-again")
    await asyncio.sleep(20)
    directed = [d.admission.job_id for d in decisions(broker) if isinstance(d, JobDirected)]
    assert sorted(directed) == sorted({f"job-{n}" for n in range(2 * JOBS)}), "each job once"
    assert sum(isinstance(d, JobsSettled) for d in decisions(broker)) >= 3
    judge(broker, store, second.state, 2 * JOBS)
    await second.end()
    return first.steps


def test_killed_at_each_step(files_that_die: list[Process], tmp_path: Path) -> None:
    steps: list[str] = run_virtually(killed_once(files_that_die, tmp_path / "whole", None, True))
    assert {"append", "write", "put segment", "put snapshot", "send", "delete"} <= set(steps)
    first = steps.index("write")  # the first segment is cut; before it, it is as for every journal
    for dies_at, same in zip(range(first - 1, min(first + 40, len(steps))), itertools.cycle([True, False])):
        run_virtually(killed_once(files_that_die, tmp_path / str(dies_at), dies_at, same))


async def lived(broker: FakeBroker, store: MemoryStore, folder: Path) -> None:
    with_pool(broker)
    process = Process(broker, store, folder)
    await process.host.ready.wait()
    process.host.on_assigned({0})
    await some_work(broker, 0, process)
    await process.end()
    assert process.state.segments() >= 3 and len(live(broker)) == 3


def no_files(folder: Path, store: MemoryStore) -> None:
    for path in (folder / "0").iterdir():
        path.unlink()


def no_segments(folder: Path, store: MemoryStore) -> None:
    for key in list(store.keys(segments_folder(DIRECTORY, 0))):
        del store[key]


def damaged_segments(folder: Path, store: MemoryStore) -> None:
    for key in list(store.keys(segments_folder(DIRECTORY, 0))):
        store[key] = b"damaged"


def nothing(folder: Path, store: MemoryStore) -> None:
    no_files(folder, store)
    no_segments(folder, store)


def damaged_all(folder: Path, store: MemoryStore) -> None:
    no_files(folder, store)
    damaged_segments(folder, store)


@pytest.mark.parametrize("harm", [no_files, no_segments, damaged_segments, nothing, damaged_all])
@pytest.mark.parametrize("trimmed", [False, True])
def test_files_objects_or_both_are_gone(harm: Callable[[Path, MemoryStore], None], trimmed: bool, tmp_path: Path) -> None:
    """From the objects, from the files, or from the journal and its archive."""

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await lived(broker, store, tmp_path)
        harm(tmp_path, store)
        archive = None
        if trimmed:
            archive = Archive(broker, live(broker)[0].offset)
        before, whole = list(broker.logs[DIRECTORY, 0]), folded_whole(broker)
        if trimmed:
            broker.starts[DIRECTORY, 0] = live(broker)[0].offset
        again = Process(broker, store, tmp_path, archive=archive)
        await again.host.ready.wait()
        assert not again.host.followers[0].halted
        assert DirectoryMachine(1).dump(again.state) == whole and broker.logs[DIRECTORY, 0] == before
        assert all(again.state.pool_of(f"job-{n}") == "p" for n in range(JOBS))
        broker.starts[DIRECTORY, 0] = 0
        again.host.on_assigned({0})
        await some_work(broker, JOBS, again)
        judge(broker, store, again.state, 2 * JOBS)
        await again.end()

    run_virtually(story())


def test_an_index_that_is_damaged_while_it_runs_halts_its_partition_which_is_recovered(tmp_path: Path) -> None:
    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await lived(broker, store, tmp_path)
        process = Process(broker, store, tmp_path)
        await process.host.ready.wait()
        process.host.on_assigned({0})
        process.index._of(0)._damage = OSError("checksum")
        with pytest.raises(StateLost):
            process.state.job("job-0")
        submitted(broker, range(JOBS + 1), again="-late")
        await asyncio.sleep(5)
        assert "damaged" in process.host.followers[0].halted
        await asyncio.sleep(60)
        assert not process.host.followers[0].halted
        judge(broker, store, process.state, JOBS + 1)
        assert not [d for d in decisions(broker) if "refused" in d.event_type], "no input was to blame"
        await process.end()

    run_virtually(story())


def test_segments_of_a_history_that_counts_no_more_are_deleted(tmp_path: Path) -> None:
    """A record of the second segment counts as empty: what was in it is decided anew, and from that segment on all are others."""

    async def story() -> None:
        broker, store = FakeBroker(), MemoryStore()
        await lived(broker, store, tmp_path)
        old = set(store.keys(segments_folder(DIRECTORY, 0)))
        foreign = f"{segments_folder(DIRECTORY, 0)}{0:08d}.another-topic.{'ab' * 32}.segment"
        store[foreign] = b"not ours"
        directed = [
            (record, entry.value)
            for entry in broker.committed(DIRECTORY, 0)
            for record in [JournalRecord.decode(entry.value or b"")]
            if any(isinstance(d, JobDirected) for d in record.decisions)
        ]
        bad, value = directed[SETTLE_AT + 1]
        assert value is not None
        repair = JournalRepaired(
            journal=DIRECTORY,
            partition=0,
            offset=0,
            seq=bad.seq,
            record_hash=record_hash(value),
            error="test",
            reason="test",
            user="test",
            at_ms=0,
        )
        broker.land(JOURNAL_REPAIRS, 0, b"k", encode(envelope_of(repair, id="repair", source="test", now_ms=0)))
        again = Process(broker, store, tmp_path)
        await again.host.ready.wait()
        again.host.on_assigned({0})
        lost = {d.admission.job_id for d in bad.decisions if isinstance(d, JobDirected)}
        assert lost and all(again.state.job(job) is None for job in lost)
        await some_work(broker, JOBS, again)
        await some_work(broker, 2 * JOBS, again)
        emptied = frozenset({record_hash(value)})
        assert DirectoryMachine(1).dump(again.state) == folded_whole(broker, emptied=emptied)
        left = set(store.keys(segments_folder(DIRECTORY, 0)))
        named = {key for p in live(broker)[:3] for key in load_names(store[p.object_key])}
        assert named <= left and foreign in left
        assert not (old - named) & left, "orphans are deleted"
        await again.end()

    run_virtually(story())


def load_names(blob: bytes) -> frozenset[str]:
    from trainhouse.scheduler.stream.journal.snapshot_blob import segments_named

    return segments_named(blob)
