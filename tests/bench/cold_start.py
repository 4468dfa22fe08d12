"""How long a process that starts cold takes until it can decide, once its snapshots and the journal's last records are with it.

The scheduler: 1,250 nodes of 8 devices, 500 running jobs, and as many records as lie between two snapshots. Intake: a directory with
300,000 finished jobs, for ever known. Processor time of one core; the brokers' and the store's answers come on top.
"""

import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from tests.bench import report
from tests.bench.journal_gate import Stage
from tests.unit.core_world import admitted
from trainhouse.events import JobAdmitted
from trainhouse.scheduler.core.batch import Proposer
from trainhouse.scheduler.core.directory import DirectoryMachine
from trainhouse.scheduler.core.directory_state import DirectoryState
from trainhouse.scheduler.core.fingerprint import fingerprint
from trainhouse.scheduler.core.journal import Folded, fold_bytes
from trainhouse.scheduler.core.state import ScheduleState
from trainhouse.scheduler.stream.snapshots import EVERY_RECORDS

T = TypeVar("T")
FINISHED = 300_000
PROCESSES = {"scheduler": "trainhouse.scheduler.core.schedule", "intake": "trainhouse.scheduler.core.directory"}


def run() -> None:
    """Prints a line for the scheduler and one for intake."""
    _scheduler()
    _intake()


def _scheduler() -> None:
    stage, values = Stage(7), list[bytes]()
    begun = Folded(0, stage.machine.load(stage.machine.dump(stage.folded.state)), stage.folded.seq, last_hash=stage.folded.last_hash)
    blob = stage.machine.dump(begun.state)
    for _ in range(EVERY_RECORDS):
        stage.now_ms += 20
        waiting = stage.waiting(stage.inputs(4))
        proposed = Proposer(stage.machine, "bench").propose(stage.folded, stage.now_ms, waiting, 0, tick=True)
        assert proposed is not None
        stage.folded, _ = fold_bytes(stage.machine, stage.folded, proposed.value, proposed.record)
        values.append(proposed.value)
    load_s, state = _took(lambda: stage.machine.load(blob))

    def fold() -> Folded[ScheduleState]:
        folded = Folded(0, state, begun.seq, last_hash=begun.last_hash)
        for value in values:
            folded, _ = fold_bytes(stage.machine, folded, value)
        return folded

    fold_s, folded = _took(fold)
    assert folded.seq == stage.folded.seq
    import_s = _import_s("scheduler")
    report.line(
        "cold_start",
        process="scheduler",
        running=len(state.active),
        snapshot_mb=len(blob) / 1e6,
        records=len(values),
        import_s=import_s,
        load_s=load_s,
        fold_s=fold_s,
        total_s=import_s + load_s + fold_s,
        aim_total_s=5,
    )


def _intake() -> None:
    machine = DirectoryMachine()
    tracemalloc.start()
    state, before = DirectoryState(0), tracemalloc.get_traced_memory()[0]
    state.put_pool("default", 0)
    event = admitted("j", ranks=8, device_type="h100", env={"A": "b"})
    assert isinstance(event, JobAdmitted)
    whole = fingerprint(event.spec)
    for number in range(FINISHED):
        state.put_job(f"training-run-{number:012}", "default", bytes(bytearray(whole)))
    gc.collect()
    job_bytes = (tracemalloc.get_traced_memory()[0] - before) / FINISHED
    tracemalloc.stop()
    dump_s, blob = _took(lambda: machine.dump(state))
    load_s, loaded = _took(lambda: machine.load(blob))
    assert len(loaded.jobs) == FINISHED
    import_s = _import_s("intake")
    report.line(
        "cold_start",
        process="intake",
        finished=FINISHED,
        snapshot_mb=len(blob) / 1e6,
        job_bytes=job_bytes,
        dump_s=dump_s,
        import_s=import_s,
        load_s=load_s,
        total_s=import_s + load_s,
        aim_total_s=5,
        aim_job_bytes=200,
    )


def _took(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def _import_s(process: str) -> float:
    """Processor seconds of a Python that loads what the process needs for deciding, and ends."""
    timed = f"import time; import {PROCESSES[process]}; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True).stdout)
