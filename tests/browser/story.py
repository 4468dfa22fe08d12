"""One job with a whole life, told by real events: it waits, trains on two nodes, saves, loses a node, begins again, trains on.

Holds: JOB has 16 ranks; its second attempt began from the checkpoint of step 60 and is at step 120; every time is before now.
"""

from __future__ import annotations

import time
from typing import Any

from tests.support.tables.alert_tables import Tables
from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.model.artifact import ArtifactRecorded
from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointRestored
from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.job import JobAdmitted, JobState, JobStatus, JobSubmitted
from trainhouse.events.model.spec import Gang, JobSpec, Runtime
from trainhouse.events.model.telemetry import LogLines, StepMetrics
from trainhouse.events.model.tracking import TraceRecorded
from trainhouse.events.model.verdict import FailureBlamed
from trainhouse.events.wire import topics

JOB = "story-1"
NODES = ("node-0001", "node-0002")
RANKS = 16
BEGAN_S = 1000
"""So many seconds ago it was submitted."""
SPEC = JobSpec.model_validate(
    {
        "name": "story",
        "user": "ada",
        "team": "language",
        "project": "research",
        "pool": "a100",
        "gang": Gang(ranks=RANKS),
        "runtime": Runtime(command=("python", "train.py", "--steps", "200")),
        "hyperparameters": {"lr": 0.0003, "batch": 32},
    }
)


class Story:
    """Tells JOB's life to some tables, and goes on telling it when a test asks."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._seq = 0
        self._file: dict[tuple[int, int, str], int] = {}
        self.zero_ms = round(time.time() * 1000) - BEGAN_S * 1000

    def ms(self, at_s: float) -> int:
        return self.zero_ms + round(at_s * 1000)

    def put(self, topic: str, event: Event, at_s: float) -> None:
        self._tables.put(topic, [event], self.ms(at_s))

    def tell(self) -> None:
        """All of it."""
        admitted = JobAdmitted(job_id=JOB, spec=SPEC, spec_sha256="ab" * 32, submission_id="story-submission", submitted_at_ms=self.ms(0))
        self.put(topics.JOBS, JobSubmitted(job_id=JobId(JOB), spec=SPEC), 0)
        self.put(topics.CONTROL, admitted, 0)
        self.status(JobState.PENDING, 0)
        self.put(topics.EXPLANATIONS, self._waits(), 20)
        self._first_attempt()
        self._second_attempt()
        about: dict[str, Any] = {"rule": "slow-step", "key": JOB, "severity": Severity.WARNING, "summary": "steps of story-1 are slow"}
        self.put(topics.ALERTS, AlertFired(**about, since_ms=self.ms(900), at_ms=self.ms(900), value=2.0, limit=1.5, labels={}), 900)

    def _first_attempt(self) -> None:
        self._given(1, 60)
        self.status(JobState.SCHEDULED, 60, 1)
        self.status(JobState.INITIALIZING, 70, 1)
        self.status(JobState.RUNNING, 100, 1, step=0)
        self.steps(1, 0, 80, 100, 3)
        self.say(1, 0, ["step 0", "loading weights", "the loss falls"], 110)
        self.say(1, 5, ["ConnectionError: peer reset <b>bold</b>"], 339, "stderr")
        self.saved(1, 1, 60, 285)
        blamed = {"category": "NODE", "rule": "lost", "summary": "node-0002 was lost", "at_ms": self.ms(345), "failed_at_ms": self.ms(340)}
        self.put(topics.VERDICTS, FailureBlamed.model_validate(self._of(1) | blamed | {"node_id": NODES[1]}), 345)
        for node in NODES:
            self.put(topics.CONTROL, AttemptStopped(**self._of(1), node_id=node, boot_id="b", stopped_at_ms=self.ms(350)), 350)
        self.status(JobState.PENDING, 351, 2, reason="node-0002 was lost; attempt 1 follows", restarts=1)

    def _second_attempt(self) -> None:
        self._given(2, 400)
        self.status(JobState.SCHEDULED, 400, 2, restarts=1)
        restored: dict[str, Any] = {"commit": 1, "step": 60, "uri": "s3://trainhouse/jobs/story-1/commits/0000000001", "restore_s": 4.0}
        self.put(topics.CHECKPOINTS, CheckpointRestored(**self._by(2, 430), **restored), 430)
        self.status(JobState.RUNNING, 440, 2, restarts=1, step=60)
        self.steps(2, 60, 60, 440, 3.5)
        self.measured(2, 119, 900)
        self.profiled(2, 3, 905)
        self.recorded(2, "used", "bpe-32k", "tokenizer", 1_300_000, 906)
        self.recorded(2, "stored", "story-export", "model", 2_040_109_465, 907)
        self.say(2, 0, [f"step {n}: loss {3 - n / 100:.3f}" for n in range(60, 120)], 900)
        self.status(JobState.RUNNING, 930, 2, restarts=1, step=120, total_steps=200, loss=1.8, steps_per_s=0.12, eta_s=640.0)

    def status(self, state: JobState, at_s: float, epoch: int = 1, **more: Any) -> None:
        """The job's status from then on."""
        self._seq += 1
        about = {"job_id": JOB, "status_seq": self._seq, "state": state, "attempt": epoch - 1, "epoch": epoch, "world_size": RANKS}
        whose = {"name": SPEC.name, "project": SPEC.project, "team": SPEC.team, "user": SPEC.user, "pool": SPEC.pool}
        times = {"submitted_at_ms": self.ms(0), "updated_at_ms": self.ms(at_s)}
        self.put(topics.STATUS, JobStatus.model_validate(about | whose | times | more), at_s)

    def saved(self, epoch: int, commit: int, step: int, at_s: float) -> None:
        """A checkpoint that is complete."""
        about: dict[str, Any] = {"commit": commit, "step": step, "uri": f"s3://trainhouse/jobs/story-1/commits/{commit:010}"}
        about |= {"bytes_total": 2_000_000_000, "bytes_new": 500_000_000}
        self.put(topics.CHECKPOINTS, CheckpointCompleted(**self._by(epoch, at_s), **about, stage_s=0.5, upload_s=12.0), at_s)

    def steps(self, epoch: int, first: int, count: int, at_s: float, every_s: float, ranks: int = RANKS) -> None:
        """Steps that every rank logged; rank 11 is slow at every tenth."""
        numbers = range(count)
        for rank in range(ranks):
            slow = [every_s * (0.4 if rank == 11 and n % 10 == 5 else 0) for n in numbers]
            metrics = {"loss": tuple(4 / (1 + (first + n) / 40) + 0.02 * (rank % 3) for n in numbers), "lr": tuple(0.0003 for _ in numbers)}
            points = {
                "steps": tuple(first + n for n in numbers),
                "times_ms": tuple(self.ms(at_s + n * every_s + slow[n]) for n in numbers),
                "offsets": tuple(range(count)),
                "metrics": metrics,
            }
            start = self._from(epoch, rank, "metrics", count)
            about = self._rank(epoch, rank) | {"start": start, "end": start + count}
            points["offsets"] = tuple(start + n for n in numbers)
            self.put(topics.METRICS, StepMetrics.model_validate(about | points), at_s)

    def measured(self, epoch: int, step: int, at_s: float) -> None:
        """What rank 0 measured of its steps."""
        values = {
            "step/total_ms": 3500.0,
            "step/data_ms": 350.0,
            "step/forward_ms": 1000.0,
            "step/backward_ms": 2000.0,
            "step/rest_ms": 150.0,
        }
        values |= {"mfu": 0.412, "tokens_per_s": 12_345.0, "pipeline/bubble": 0.125}
        self.logged(epoch, step, at_s, values)

    def logged(self, epoch: int, step: int, at_s: float, values: dict[str, float]) -> None:
        """One point of rank 0."""
        start = self._from(epoch, 0, "metrics", 1)
        about = self._rank(epoch, 0) | {
            "start": start,
            "end": start + 1,
            "steps": (step,),
            "times_ms": (self.ms(at_s),),
            "offsets": (start,),
        }
        self.put(topics.METRICS, StepMetrics.model_validate(about | {"metrics": {n: (v,) for n, v in values.items()}}), at_s)

    def profiled(self, epoch: int, rank: int, at_s: float) -> None:
        """A trace of one rank."""
        sha256 = "cd" * 32
        fields = {"path": f"profiles/r1/rank-{rank}.pt.trace.json.gz", "uri": f"s3://trainhouse/artifacts/{JOB}/{sha256}", "sha256": sha256}
        fields |= {"size_bytes": 1_500_000, "first_step": 100, "steps": 20, "at_ms": self.ms(at_s)}
        self.put(topics.ENVIRONMENTS, TraceRecorded.model_validate(self._rank(epoch, rank) | fields), at_s)

    def recorded(self, epoch: int, action: str, name: str, kind: str, size_bytes: int, at_s: float) -> None:
        """A version of an artifact that rank 0 stored or used."""
        fields = {"action": action, "name": name, "kind": kind, "sha256": "1f" * 32, "bytes": size_bytes, "files": 2}
        recorded = ArtifactRecorded.model_validate(self._rank(epoch, 0) | fields | {"at_ms": self.ms(at_s)})
        self.put(topics.ENVIRONMENTS, recorded, at_s)

    def say(self, epoch: int, rank: int, lines: list[str], at_s: float, stream: str = "stdout") -> None:
        """Lines of a rank's output."""
        start = self._from(epoch, rank, stream, 100 * len(lines))
        offsets = tuple(start + 100 * n for n in range(len(lines)))
        about = self._rank(epoch, rank) | {"start": start, "end": start + 100 * len(lines)}
        more = {"stream": stream, "lines": tuple(lines), "offsets": offsets, "read_at_ms": self.ms(at_s)}
        self.put(topics.LOGS, LogLines.model_validate(about | more), at_s)

    def _given(self, epoch: int, at_s: float) -> None:
        half = RANKS // len(NODES)
        placed = [(node, i * half, tuple(f"{node}:gpu{d}" for d in range(half))) for i, node in enumerate(NODES)]
        places = tuple(NodePlacement(node_id=n, boot_id="b", address="a", first_rank=first, devices=d) for n, first, d in placed)
        fields: dict[str, Any] = {"spec": SPEC, "spec_sha256": "ab" * 32, "placements": places, "master_address": "a", "master_port": 1}
        self.put(topics.ALLOCATIONS, GangAllocated(**self._of(epoch), **fields), at_s)
        for node in NODES:
            self.put(topics.CONTROL, AttemptStarted(**self._of(epoch), node_id=node, started_at_ms=self.ms(at_s + 5), warm=True), at_s + 5)

    def _waits(self) -> JobExplained:
        about: dict[str, Any] = {"job_id": JOB, "pool": "a100", "team": "language", "at_ms": self.ms(20), "waiting_since_ms": self.ms(0)}
        why = {"place": 3, "waiting": 9, "needs": "16 devices", "obstacle": "NO_ROOM", "text": "16 devices are needed at once; 12 are free"}
        return JobExplained.model_validate(about | why | {"unblock": ("wait for bulk-00004 to end",)})

    def _from(self, epoch: int, rank: int, stream: str, length: int) -> int:
        start = self._file.get((epoch, rank, stream), 0)
        self._file[(epoch, rank, stream)] = start + length
        return start

    def _of(self, epoch: int) -> dict[str, Any]:
        return {"job_id": JOB, "attempt": epoch - 1, "epoch": epoch, "pool": "a100"}

    def _by(self, epoch: int, at_s: float) -> dict[str, Any]:
        return {"job_id": JOB, "attempt": epoch - 1, "epoch": epoch, "at_ms": self.ms(at_s)}

    def _rank(self, epoch: int, rank: int) -> dict[str, Any]:
        return {"job_id": JOB, "attempt": epoch - 1, "epoch": epoch, "rank": rank, "node_id": NODES[rank * len(NODES) // RANKS]}
