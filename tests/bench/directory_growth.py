"""What 10 million jobs ever cost intake: memory of each, what a record of submissions takes, how long a snapshot holds the loop, a start.

Two partitions of the directory are fed alike, record by record in turn, one of them with 10 M settled jobs before: new jobs, repeats and
cancellations of old ones. Processor time of the deciding thread, and wall time beside it: neighbours on the machine count in the latter.
The longest gap of a loop is that of a task that asks for a turn again and again while a snapshot is taken; beside it the same without one.
"""

import asyncio
import gc
import random
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.bench import report
from tests.bench.journal_gate import Stage
from tests.support.core_world import admitted
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock
from trainhouse.events import CancelJob, Event, JobAdmitted, JobSubmitted, PoolCreated, encode, envelope_of
from trainhouse.events.wire.topics import ADMISSION, CONTROL, DECISIONS, DIRECTORY
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import SETTLE_AT, DirectoryState
from trainhouse.scheduler.core.intake.fingerprint import fingerprint
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.snapshot_choice import segment_key
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.settled.settled_index import SettledIndex

SETTLED = 10_000_000
RECORDS, SUBMISSIONS, REPEATS, CANCELS = 600, 80, 10, 10


class FolderStore:
    """A snapshot store in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(data)

    def get(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.exists() else None

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        found = (str(p.relative_to(self.root)) for p in (self.root / prefix).rglob("*") if p.is_file())
        return iter(sorted(key for key in found if key > start_after))

    def delete(self, key: str) -> None:
        (self.root / key).unlink(missing_ok=True)


class Partition:
    """One partition of the directory as its owner and its own reader handle it."""

    def __init__(self, folder: Path) -> None:
        self.index = SettledIndex(folder)
        self.machine = DirectoryMachine(index=self.index)
        self.random, self.known = random.Random(5), list[str]()
        self.folded: Folded[DirectoryState] = begin(self.machine, 0)
        self.proposer = Proposer(self.machine, "bench", input_topic=ADMISSION)
        event = admitted("j", pool="default", ranks=8, device_type="h100", env={"A": "b"}, priority=7)
        assert isinstance(event, JobAdmitted)
        self.spec = event.spec
        self.take([PoolCreated.model_validate({"pool": "default", "partition": 0})])

    def name(self) -> str:
        return f"run-{self.random.getrandbits(64):016x}"

    def fill(self, jobs: int) -> None:
        """So many settled jobs."""
        whole, state = fingerprint(self.spec), self.folded.state
        for _ in range(jobs // SETTLE_AT):
            for _ in range(SETTLE_AT):
                state.put_job(self.name(), "default", bytes(bytearray(whole)))
            self.known = list(state.jobs)
            state.settle()
        for part in self.machine.segments(state):
            part.segment()

    def events(self) -> list[Event]:
        """What a record brings: new jobs, jobs that are sent again, cancellations."""
        old = self.random.sample(self.known, REPEATS + CANCELS) if len(self.known) > 1_000 else []
        new = [self.name() for _ in range(SUBMISSIONS + (0 if old else REPEATS + CANCELS))]
        self.known = [*self.known[-50_000:], *new]
        found: list[Event] = [JobSubmitted.model_validate({"job_id": job, "spec": self.spec}) for job in [*new, *old[:REPEATS]]]
        return found + [CancelJob.model_validate({"job_id": job}) for job in old[REPEATS:]]

    def take(self, events: list[Event]) -> tuple[float, float]:
        """One record; seconds of this thread and of the wall."""
        first = self.folded.cursor + 1
        values = [encode(envelope_of(e, id=f"e{first + n}", source="bench", now_ms=0)) for n, e in enumerate(events)]
        waiting = [pending(first + n, value, (), Limits()) for n, value in enumerate(values)]
        begun, wall = time.thread_time(), time.perf_counter()
        proposed = self.proposer.propose(self.folded, self.folded.now_ms + 20, waiting, 0, tick=True)
        assert proposed is not None
        self.folded, _ = fold_bytes(self.machine, self.folded, proposed.value, proposed.record)
        return time.thread_time() - begun, time.perf_counter() - wall


def run() -> None:
    """Prints a line for each question."""
    with tempfile.TemporaryDirectory() as folder:
        _hot()
        empty, full = Partition(Path(folder) / "empty"), Partition(Path(folder) / "full")
        _grown(full, Path(folder) / "full")
        _latency(empty, full)
        store = FolderStore(Path(folder) / "objects")
        _held("directory", full.machine, full.folded, DIRECTORY, store)
        _start(full, Path(folder), store)
        stage = Stage(7)
        for _ in range(200):
            stage.step(stage.inputs(16))
        _held("schedule", stage.machine, stage.folded, DECISIONS, store)
        empty.index.close()


def _hot() -> None:
    """Bytes of a job while it is in the table."""
    event = admitted("j", pool="default", ranks=8, device_type="h100", env={"A": "b"})
    assert isinstance(event, JobAdmitted)
    whole, dice = fingerprint(event.spec), random.Random(1)
    tracemalloc.start()
    state, before = DirectoryState(0), tracemalloc.get_traced_memory()[0]
    state.put_pool("default", 0)
    for _ in range(SETTLE_AT):
        state.put_job(f"run-{dice.getrandbits(64):016x}", "default", bytes(bytearray(whole)))
    gc.collect()
    job_bytes = (tracemalloc.get_traced_memory()[0] - before) / SETTLE_AT
    tracemalloc.stop()
    report.line("directory_growth", what="memory of a job in the table", job_bytes=job_bytes, aim_job_bytes=200)


def _grown(full: Partition, folder: Path) -> None:
    gc.collect()
    process = psutil.Process()
    before, begun = process.memory_info().rss, time.perf_counter()
    full.fill(SETTLED)
    took = time.perf_counter() - begun
    full.known = full.known[:20_000]
    gc.collect()
    jobs, disk = sum(p.segment().jobs for p in full.machine.segments(full.folded.state)), _disk_bytes(folder)
    report.line(
        "directory_growth",
        what="memory and disk of settled jobs",
        jobs=jobs,
        segments=len(full.machine.segments(full.folded.state)),
        resident_mb=(process.memory_info().rss - before) / 1e6,
        resident_bytes_per_job=(process.memory_info().rss - before) / jobs,
        disk_bytes_per_job=disk / jobs,
        fill_s=took,
    )


def _disk_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _latency(empty: Partition, full: Partition) -> None:
    for _ in range(20):
        empty.take(empty.events())
        full.take(full.events())
    gc.collect()
    took: dict[str, list[tuple[float, float]]] = {"empty": [], "full": []}
    for _ in range(RECORDS):
        took["empty"].append(empty.take(empty.events()))
        took["full"].append(full.take(full.events()))
    found = {
        f"{which}_{name}_p{percent}_ms": 1000 * report.percentile([times[n] for times in of], percent)
        for which, of in took.items()
        for n, name in enumerate(("cpu", "wall"))
        for percent in (50, 99)
    }
    ratio = found["full_cpu_p99_ms"] / found["empty_cpu_p99_ms"]
    inputs = SUBMISSIONS + REPEATS + CANCELS
    report.line("directory_growth", what="a record of intake", inputs=inputs, records=RECORDS, **found, ratio_p99=ratio, aim_ratio_p99=1.1)


def _held(name: str, machine: Machine[Any], folded: Folded[Any], journal: str, store: FolderStore) -> None:
    """Three snapshots on a running loop."""

    async def story() -> dict[str, float]:
        log = FakeLog(FakeBroker())
        snapshots = Snapshots(log, store, journal, machine, every_records=1)
        follower = Follower(machine, CONTROL, folded, 0, Ownership("bench", 2.0, 0.0), LoopClock())
        gaps = {"without": 0.0, "with": 0.0}
        counting, ends = ["without"], [False]

        async def ask() -> None:
            last = time.perf_counter()
            while not ends[0]:
                await asyncio.sleep(0.001)
                now = time.perf_counter()
                gaps[counting[0]] = max(gaps[counting[0]], now - last - 0.001)
                last = now

        task = asyncio.create_task(ask())
        await asyncio.sleep(2)
        captures = list[float]()
        for _ in range(3):
            snapshots._taken.clear()
            counting[0] = "with"
            begun = time.thread_time()
            await snapshots.after_record(follower)
            captures.append(time.thread_time() - begun)
            while snapshots._saving or snapshots._tasks:
                await asyncio.sleep(0.001)
            counting[0] = "without"
            await asyncio.sleep(0.2)
        ends[0] = True
        await task
        return {"capture_ms": 1000 * max(captures), "gap_ms": 1000 * gaps["with"], "gap_without_ms": 1000 * gaps["without"]}

    begun = time.perf_counter()
    found = asyncio.run(story())
    dump_s = _took(lambda: machine.dump(folded.state))
    size = max((p.stat().st_size for p in _objects(store, journal)), default=0)
    took = time.perf_counter() - begun
    report.line("directory_growth", what=f"snapshots of {name}", snapshot_mb=size / 1e6, dump_ms=1000 * dump_s, **found, all_s=took)


def _objects(store: FolderStore, journal: str) -> Iterator[Path]:
    return (store.root / "snapshots" / journal / "0").glob("*.json")


def _start(full: Partition, folder: Path, store: FolderStore) -> None:
    """From a snapshot, with the files that were there and without any."""
    dumped, topic_id = full.machine.dump(full.folded.state), f"id-of-{DIRECTORY}"
    full.index.close()
    for what, where in (("with", folder / "full"), ("without", folder / "anew")):
        index, begun = SettledIndex(where), time.perf_counter()
        state = DirectoryMachine(index=index).load_with(dumped, lambda s: store.get(segment_key(DIRECTORY, 0, topic_id, s)))
        took = time.perf_counter() - begun
        assert state.job(full.known[0]) is not None
        report.line("directory_growth", what=f"a start {what} the files", segments=state.segments(), load_s=took)
        index.close()


def _took(work: Any) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun
