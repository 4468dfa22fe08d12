"""Carries out a run's faults: watches training from the ranks' own spools, and strikes when a fault is due.

Holds: every fault of the plan is carried out, late ones as soon as there is something to strike; what was done is returned.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.faults import Fault, Kind
from tests.chaos.hands import Hands
from trainhouse.workers.launcher.ports import AttemptPaths, RankPaths

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
    """What the ranks of one job say on this machine's disk. `attempts`: one folder for each node."""

    attempts: tuple[Path, ...]
    job_id: str

    def rank_0(self) -> RankPaths | None:
        """The newest epoch's rank 0 that has a spool."""
        found = [RankPaths(rank) for folder in self.attempts for rank in folder.glob(f"{self.job_id}/*/rank-0")]
        return max((rank for rank in found if rank.spool.exists()), key=_epoch, default=None)

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
        newest = self.rank_0()
        if newest is None:
            return []
        folders = sorted(d for folder in self.attempts for d in folder.glob(f"{self.job_id}/{newest.folder.parent.name}/rank-*"))
        ranks = [d for d in folders if not (d / "exit.json").exists() and (d / "pid.json").exists()]
        return [int(orjson.loads((d / "pid.json").read_bytes())["pid"]) for d in ranks]

    def _tail(self) -> list[list[Any]]:
        newest = self.rank_0()
        if newest is None:
            return []
        with newest.spool.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read()
        lines = data.splitlines(keepends=True)
        whole = [line for line in (lines if size <= TAIL_BYTES else lines[1:]) if line.endswith(b"\n")]
        return [orjson.loads(line) for line in whole]


def _epoch(rank: RankPaths) -> int:
    return AttemptPaths(rank.folder.parent).epoch


@dataclass
class Driver:
    """Strikes as planned while a job trains. `part_pid`: of a part that runs now; `ended`: whether the job has."""

    hands: Hands
    training: Training
    part_pid: Callable[[str], int | None]
    ended: Callable[[], bool]
    say: Callable[[str], None] = print
    done: list[Done] = field(default_factory=list)

    def carry_out(self, faults: list[Fault]) -> None:
        """Blocks until the last fault is done (those that last may still do so); stops early when the job has ended.

        Raises TimeoutError when training stands still; `done` says how far it came.
        """
        for fault in faults:
            if not self._reached(fault):
                return
            time.sleep(fault.delay_s)
            pid = self._struck(fault, {d.pid for d in self.done if d.fault.kind is Kind.KILL})
            if pid is None:
                return
            self.done.append(Done(fault, pid, self.training.step()))
            self.say(str(self.done[-1]))

    def _reached(self, fault: Fault) -> bool:
        """Waits for the fault's instant; False when the job ended first."""
        deadline = time.monotonic() + WAIT_FOR_STEP_S
        while self.training.step() < fault.step:
            if self.ended():
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.training.job_id} did not reach step {fault.step} in {WAIT_FOR_STEP_S:.0f} s")
            time.sleep(POLL_S)
        until = time.monotonic() + WAIT_FOR_SAVE_S
        while fault.mid_commit and not self.training.saving() and time.monotonic() < until and not self.ended():
            time.sleep(0.001)
        return True

    def _struck(self, fault: Fault, dead: set[int]) -> int | None:
        """Strikes the fault's target as soon as a process of it lives that is not in `dead`; None when the job ended first."""
        deadline = time.monotonic() + WAIT_FOR_STEP_S
        while time.monotonic() < deadline and not self.ended():
            pid = self._target(fault)
            if pid is not None and pid not in dead and self.hands.strike(fault, pid):
                return pid
            time.sleep(POLL_S)
        return None

    def _target(self, fault: Fault) -> int | None:
        if fault.target != "rank":
            return self.part_pid(fault.target)
        ranks = self.training.rank_pids()
        return ranks[fault.step % len(ranks)] if ranks else None
