"""Carries out a run's faults: watches training from the ranks' own spools, and kills with SIGKILL when a fault is due.

Holds: every fault of the plan is carried out, late ones as soon as there is something to kill; what was done is returned.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.faults import Fault

POLL_S = 0.01
WAIT_FOR_STEP_S = 240.0
WAIT_FOR_SAVE_S = 20.0
TAIL_BYTES = 4096


@dataclass(frozen=True)
class Done:
    """One fault as it was carried out: which process, at which step of the rank's own spool."""

    fault: Fault
    pid: int
    step: int

    def __str__(self) -> str:
        return f"{self.fault} (pid {self.pid}, at step {self.step})"


@dataclass
class Training:
    """What the ranks of one job say on this machine's disk."""

    attempts: Path
    job_id: str

    def spool(self) -> Path | None:
        """Rank 0's spool of the newest epoch."""
        found = [(int(p.parts[-3]), p) for p in self.attempts.glob(f"{self.job_id}/*/rank-0/spool.jsonl")]
        return max(found)[1] if found else None

    def step(self) -> int:
        """The last step in that spool; -1 before the first."""
        for fields in reversed(self._tail()):
            if fields[0] == "m":
                return int(fields[1])
        return -1

    def saving(self) -> bool:
        """Whether a save began and has not been said to be complete."""
        for fields in reversed(self._tail()):
            if fields[0] == "e" and fields[1] in ("CheckpointStarted", "CheckpointCompleted", "CheckpointFailed"):
                return bool(fields[1] == "CheckpointStarted")
        return False

    def rank_pids(self) -> list[int]:
        """Processes of the newest epoch's ranks that have not exited."""
        spool = self.spool()
        if spool is None:
            return []
        ranks = [d for d in sorted(spool.parents[1].glob("rank-*")) if not (d / "exit.json").exists() and (d / "pid.json").exists()]
        return [int(orjson.loads((d / "pid.json").read_bytes())["pid"]) for d in ranks]

    def _tail(self) -> list[list[Any]]:
        spool = self.spool()
        if spool is None:
            return []
        with spool.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read()
        lines = data.splitlines(keepends=True)
        whole = [line for line in (lines if size <= TAIL_BYTES else lines[1:]) if line.endswith(b"\n")]
        return [orjson.loads(line) for line in whole]


def carry_out(faults: list[Fault], training: Training, part_pid: Callable[[str], int | None], ended: Callable[[], bool]) -> list[Done]:
    """Kills as planned; stops early when the job has ended. Blocks until the last fault is done."""
    done: list[Done] = []
    for fault in faults:
        deadline = time.monotonic() + WAIT_FOR_STEP_S
        while training.step() < fault.step:
            if ended():
                return done
            if time.monotonic() > deadline:
                raise TimeoutError(f"training did not reach step {fault.step} in {WAIT_FOR_STEP_S:.0f} s after {[str(d) for d in done]}")
            time.sleep(POLL_S)
        if fault.mid_commit:
            until = time.monotonic() + WAIT_FOR_SAVE_S
            while not training.saving() and time.monotonic() < until and not ended():
                time.sleep(0.001)
        time.sleep(fault.delay_s)
        pid = _victim(fault, training, part_pid, ended, {d.pid for d in done})
        if pid is None:
            return done
        done.append(Done(fault, pid, training.step()))
    return done


def _victim(
    fault: Fault, training: Training, part_pid: Callable[[str], int | None], ended: Callable[[], bool], dead: set[int]
) -> int | None:
    """Kills the fault's target as soon as a process of it lives that is not in `dead`; None when the job ended first."""
    deadline = time.monotonic() + WAIT_FOR_STEP_S
    while time.monotonic() < deadline and not ended():
        ranks = training.rank_pids()
        pid = (ranks[fault.step % len(ranks)] if ranks else None) if fault.target == "rank" else part_pid(fault.target)
        if pid is not None and pid not in dead:
            try:
                os.kill(pid, signal.SIGKILL)
                return pid
            except ProcessLookupError:
                pass
        time.sleep(POLL_S)
    return None
