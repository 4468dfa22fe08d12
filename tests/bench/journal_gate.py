"""What the gate before the journal costs: of the processor time of a record, from the inputs to the folded state, how much it adds.

A partition with 1,250 nodes of 8 devices and 500 running jobs; each record holds a few reports of ranks, now and then an end and a new job,
and a tick. Beside it the same without the gate, as it was: decide, encode, encode again to append, decode, fold, make the effects.
"""

import random
import time
from collections.abc import Sequence

from tests.bench import report
from tests.support.core_world import admitted, registered
from trainhouse.events import AttemptStopped, Event, ProgressReported, RankExited, encode, envelope_of
from trainhouse.events.wire.topics import CONTROL
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState

NODES, JOBS, RECORDS = 1_250, 500, 1_000
REPORTS = (1, 4, 16)


class Plain(Proposer[ScheduleState]):
    """Proposes as before there was a gate."""

    def record_only(self, folded: Folded[ScheduleState], now_ms: int, batch: Sequence[Pending]) -> bytes:
        record = self._decided(folded, now_ms, batch, 0, True)
        self.machine.effects(record.seq, now_ms, [], record.decisions)
        len(record.encode())
        return record.encode()


class Stage:
    """One partition that is fed record by record."""

    def __init__(self, seed: int) -> None:
        self.machine, self.random = ScheduleMachine(), random.Random(seed)
        self.folded = begin(self.machine, 0)
        self.now_ms, self.submitted = 1_000_000, 0
        for first in range(0, NODES, 250):
            self.step([registered(f"n{n:04}", slots=8, device_type="h100") for n in range(first, first + 250)])
        self.now_ms += 60_000
        while len(self.folded.state.active) < JOBS:
            self.step([self.job() for _ in range(50)])

    def job(self) -> Event:
        self.submitted += 1
        ranks = self.random.choice((1, 2, 4, 8, 8, 16, 32))
        return admitted(f"j{self.submitted:05}", ranks=ranks, device_type="h100", env={f"V{n}": "x" * 40 for n in range(20)})

    def inputs(self, count: int) -> list[Event]:
        """Reports of running jobs; in every tenth record one ends and another is submitted."""
        found = self.progress(self.random.sample(sorted(self.folded.state.active), count))
        return found + self.turnover() if self.random.random() < 0.1 else found

    def progress(self, job_ids: Sequence[str]) -> list[Event]:
        """A report of each job's rank 0."""
        state, found = self.folded.state, list[Event]()
        for job_id in job_ids:
            job = state.jobs[job_id]
            told = {
                "pool": "default",
                "job_id": job_id,
                "attempt": job.attempt,
                "epoch": job.epoch,
                "rank": 0,
                "step": self.random.randrange(10**6),
            }
            node = job.allotment.placements[0].node_id if job.allotment is not None else "n0000"
            found.append(ProgressReported.model_validate(told | {"node_id": node, "loss": self.random.random(), "at_ms": self.now_ms}))
        return found

    def turnover(self) -> list[Event]:
        """A job ends, and another is submitted."""
        state, found = self.folded.state, list[Event]()
        job = state.jobs[self.random.choice(sorted(state.active))]
        assert job.allotment is not None
        about = {"pool": "default", "job_id": job.job_id, "attempt": job.attempt, "epoch": job.epoch}
        for placement in job.allotment.placements:
            part = about | {"node_id": placement.node_id}
            for rank in placement.ranks:
                found.append(RankExited.model_validate(part | {"rank": rank, "exit_code": 0, "exited_at_ms": self.now_ms}))
            found.append(AttemptStopped.model_validate(part | {"boot_id": "boot-1", "stopped_at_ms": self.now_ms}))
        return [*found, self.job()]

    def waiting(self, events: Sequence[Event]) -> list[Pending]:
        first, limits = self.folded.cursor + 1, Limits()
        values = [encode(envelope_of(e, id=f"e{first + n}", source="bench", now_ms=self.now_ms)) for n, e in enumerate(events)]
        return [pending(first + n, value, (), limits) for n, value in enumerate(values)]

    def step(self, events: Sequence[Event]) -> float:
        """One record through the gate, as an owner and its own reader handle it; processor seconds."""
        self.now_ms += 20
        waiting, proposer = self.waiting(events), Proposer(self.machine, "bench")
        begun = time.process_time()
        proposed = proposer.propose(self.folded, self.now_ms, waiting, 0, tick=True)
        assert proposed is not None
        self.folded, counted = fold_bytes(self.machine, self.folded, proposed.value, proposed.record)
        took = time.process_time() - begun
        assert counted is not None
        return took

    def plain(self, events: Sequence[Event]) -> float:
        """The same without the gate."""
        self.now_ms += 20
        waiting, proposer = self.waiting(events), Plain(self.machine, "bench")
        begun = time.process_time()
        value = proposer.record_only(self.folded, self.now_ms, waiting)
        self.folded, counted = fold_bytes(self.machine, self.folded, value)
        assert counted is not None
        outgoing(self.machine, CONTROL, 0, counted)
        return time.process_time() - begun


def run() -> None:
    """Prints one line per number of reports in a record."""
    stage = Stage(7)
    for reports in REPORTS:
        took: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(RECORDS):
            gated = turn % 2 == 0
            events = stage.inputs(reports)
            took[gated].append(1000 * (stage.step(events) if gated else stage.plain(events)))
        mean = {gated: sum(values) / len(values) for gated, values in took.items()}
        report.line(
            "journal_gate",
            reports=reports,
            nodes=NODES,
            running=JOBS,
            gated_mean_ms=mean[True],
            plain_mean_ms=mean[False],
            gated_p50_ms=report.percentile(took[True], 50),
            plain_p50_ms=report.percentile(took[False], 50),
            added=report.percentile(took[True], 50) / report.percentile(took[False], 50) - 1,
            aim_added=0.1,
        )
