"""Help for tests of gangs that make way: jobs that last until a test has seen enough, and a pool as its users see it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stack.live_agent import shown
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.client import TrainhouseClient
from trainhouse.client.client import spec_of
from trainhouse.client.errors import UnknownJobError
from trainhouse.events import JobState, JobStatus

STEPS = 150


def paced_gpt(step_s: float, steps: int, *more: str) -> str:
    """The example as it is, small, but each step takes its time until a file says that the test has seen enough: at first `step_s`, later
    up to five times as long, so that a test sees much soon, and a slow one is not too late."""
    return f"""\
import os, time
from trainhouse.workers.examples import gpt, text
class Paced(text.Windows):
    steps = 0
    def __next__(self):
        Paced.steps += 1
        until = time.monotonic() + {step_s} * min(5.0, 1 + Paced.steps / 20)
        while not os.path.exists(os.environ["ENOUGH"]) and time.monotonic() < until:
            time.sleep(0.1)
        return super().__next__()
gpt.Windows = Paced
small = ["--width", "32", "--layers", "1", "--context", "32", "--batch", "4", "--eval-windows", "16"]
gpt.main([*small, "--steps", "{steps}", *{list(more)}])
"""


# Long enough that a test on a busy machine has seen what it wants before the last step.
PACED_GPT = paced_gpt(1.0, STEPS)
UNTIL_ENOUGH = """\
import os, time
while not os.path.exists(os.environ["ENOUGH"]):
    time.sleep(0.1)
"""


@dataclass(frozen=True)
class Job:
    """One submitted job, and the file that tells it that enough was seen."""

    id: str
    client: TrainhouseClient
    file: Path

    def status(self) -> JobStatus:
        return self.client.status(self.id)

    def seen(self) -> JobStatus | None:
        """Its status; None until the submission has got as far as the status topic."""
        try:
            return self.status()
        except UnknownJobError:
            return None

    def until(self, what: Callable[[JobStatus], bool]) -> JobStatus:
        """The first status for which that holds; a final one ends the wait."""

        def look() -> JobStatus | None:
            status = self.seen()
            if status is None:
                return None
            assert what(status) or not status.state.final, status
            return status if what(status) else None

        found: JobStatus = until(look, self.seen)
        return found

    def starts(self) -> JobStatus:
        """Every rank has its process. (A program that reports nothing is said to run only later.)"""
        return self.until(lambda s: s.state in (JobState.INITIALIZING, JobState.RUNNING))

    def trains(self, ranks: int, beyond: int = 0) -> JobStatus:
        """It runs with so many ranks, and finished steps beyond `beyond`."""
        return self.until(lambda s: s.state is JobState.RUNNING and s.world_size == ranks and (s.step or 0) > beyond)

    def enough(self) -> None:
        self.file.touch()

    def succeeds(self) -> JobStatus:
        self.enough()
        return self.until(lambda s: s.state is JobState.SUCCEEDED)


@dataclass(frozen=True)
class Pool:
    """A pool of its own with two nodes."""

    name: str
    nodes: tuple[str, ...]
    stack: LiveStack
    client: TrainhouseClient
    folder: Path
    jobs: list[Job]

    def script(self, program: str) -> tuple[str, str]:
        """The command that runs it: a file, since only files start warm."""
        file = shown(self.folder) / f"{hashlib.sha256(program.encode()).hexdigest()[:8]}.py"
        file.write_text(program)
        return "python", str(file)

    def submit(self, name: str, program: str, gang: object, **more: Any) -> Job:
        file = shown(self.folder) / f"{name}-{secrets.token_hex(3)}"
        fields = {
            "name": name,
            "pool": self.name,
            "gang": gang,
            "runtime": {"command": self.script(program)},
            "env": {"ENOUGH": str(file)},
            "limits": {"restarts": 0},
            "checkpoint": {"min_interval_s": 900, "max_interval_s": 900},
        }
        self.jobs.append(Job(str(self.client.submit(spec_of(fields | more)).job_id), self.client, file))
        return self.jobs[-1]

    def rows(self, query: str) -> list[dict[str, Any]]:
        return self.client.sql.table(query).dicts()

    def once(self, query: str, what: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The rows once that holds of them: each table comes in its own time."""

        def look() -> list[dict[str, Any]] | None:
            rows = self.rows(query)
            return rows if what(rows) else None

        return until(look, lambda: self.rows(query))

    def states(self, job: Job) -> list[str]:
        """The states that the job went through, as its story tells."""
        query = f"SELECT state FROM job_status_history WHERE job_id = '{job.id}' ORDER BY status_seq"

        def told() -> list[str]:
            found = [str(row["state"]) for row in self.rows(query)]
            return [state for at, state in enumerate(found) if at == 0 or found[at - 1] != state]

        until(lambda: "SUCCEEDED" in told(), told)
        return told()

    def every_step_once(self, job: Job) -> list[tuple[int, int]]:
        """No step was lost or done twice, whatever the attempts; gives the first step and the ranks of each attempt."""
        query = f"SELECT epoch, step FROM step_metrics WHERE job_id = '{job.id}' AND metric = 'loss' AND rank = 0 ORDER BY step"
        found = self.once(query, lambda rows: len(rows) >= STEPS)
        assert [row["step"] for row in found] == list(range(STEPS)), found
        assert [row["epoch"] for row in found] == sorted(row["epoch"] for row in found)
        begins = {row["epoch"]: row["step"] for row in reversed(found)}
        attempts = f"SELECT epoch, world_size FROM attempts WHERE job_id = '{job.id}'"
        ranks = {r["epoch"]: r["world_size"] for r in self.once(attempts, lambda rows: {r["epoch"] for r in rows} >= begins.keys())}
        return [(begins[epoch], ranks[epoch]) for epoch in sorted(begins)]

    def resumed_from(self, job: Job) -> list[int]:
        """The steps of the checkpoints that attempts began from; each is one that the attempt before saved. For a job that has ended."""
        last = job.status().last_checkpoint
        assert last is not None
        checkpoints = f"SELECT commit, epoch, step FROM checkpoints WHERE job_id = '{job.id}'"
        # All that was told of a job's checkpoints comes in its order, the last one last.
        saved = {r["commit"]: r for r in self.once(checkpoints, lambda rows: last.step in [r["step"] for r in rows])}
        restores = self.rows(f"SELECT epoch, commit, step FROM checkpoint_restores WHERE job_id = '{job.id}' ORDER BY epoch")
        for restore in restores:
            found = saved[restore["commit"]]
            assert found["epoch"] < restore["epoch"] and found["step"] == restore["step"]
        return [restore["step"] for restore in restores]
