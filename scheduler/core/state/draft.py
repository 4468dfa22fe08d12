"""Decisions in the making: a fork of the state on which each decision is folded as soon as it is made.

Holds: what `decide` sees after a decision is what every reader of the journal will see after it; the real state stays as it was.
"""

from dataclasses import dataclass, field
from typing import Final

from trainhouse.events import Event
from trainhouse.events.model.bounds import MOST_SMALL
from trainhouse.events.model.decisions import JobForgotten, JobMoved
from trainhouse.events.model.phases import Phase
from trainhouse.events.wire.rank_end import one_line
from trainhouse.scheduler.core.state.fold import fold_decision
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.core.state.status import LIVE_SINCE, status_of
from trainhouse.scheduler.core.state.transitions import check_move, state_of

MAX_REASON_CHARS: Final = 2_000


@dataclass(slots=True)
class Draft:
    """One `decide` at work. `state` is the fork; `decisions` is what comes of it; `level` is what may be decided (`Machine.level`)."""

    state: ScheduleState
    now_ms: int
    level: int = MOST_SMALL
    decisions: list[Event] = field(default_factory=list)

    def emit(self, decision: Event) -> None:
        """Makes a decision."""
        fold_decision(self.state, self.now_ms, decision)
        self.decisions.append(decision)

    def move(self, job_id: str, phase: Phase, reason: str) -> None:
        """Takes a job to another phase, for a reason of one line, and publishes its status; a final phase ends its life here."""
        job = self.state.job(job_id)
        check_move(job_id, job.phase, phase)
        self.emit(JobMoved(job_id=job.job_id, phase=phase, reason=one_line(reason, MAX_REASON_CHARS)))
        self.publish(job_id)
        if state_of(phase).final:
            self.emit(JobForgotten(job_id=job.job_id))

    def publish(self, job_id: str) -> None:
        """Publishes the job's whole status as it is now."""
        self.emit(status_of(self.state.job(job_id), self.now_ms, live=self.level >= LIVE_SINCE))

    def live(self, job_id: str) -> Job | None:
        """A job that is not finished, if it is known."""
        return self.state.jobs.get(job_id)
