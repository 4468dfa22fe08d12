"""The newest progress of the running jobs of one partition, beside its journal: what of it the journal needs, and which statuses follow.

Progress that changes no decision leaves no record. Its owner puts a mark of each job into the journal, at most one in MARK_EVERY_MS while
nothing else asks for one, and before whatever else it decides about the job; the job's live statuses are numbered as `status` says.
Holds: a number is used once, by the process whose own record gave it, and not after that process has folded a record of another one: so of
two owners the later publisher has the larger numbers. Entries are bounded by the jobs that run.
Never: changes the state; decides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from trainhouse.events import Event, JobStatus, ProgressReported
from trainhouse.events.model.attempt import AttemptReport
from trainhouse.events.model.decisions import JobForgotten, JobProgressed
from trainhouse.events.model.handover import PoolHandedOver
from trainhouse.events.model.phases import Checkpointing, Initializing, Progress, Running, Scheduled, Stopping
from trainhouse.scheduler.core.handlers.reports import MARK_EVERY_MS, NO_PROGRESS, STATUS_EVERY_MS, changes_decisions, current, is_old
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.core.state.status import LIVE_STEP, live_status_of

ROUND_MS: Final = 1_000
MOST_MARKS: Final = 200
"""Marks in one record; the others follow in the next one."""
_SPARE: Final = LIVE_STEP // 10


Shown = tuple[int, int, int]


@dataclass(slots=True)
class Portion:
    """Numbers that one own record gave: those from `begin` + 1 on, of which `number` was used last, for the progress `shown`."""

    begin: int
    number: int
    marked_ms: int
    published_ms: int
    shown: Shown | None = None

    @property
    def left(self) -> int:
        return self.begin + LIVE_STEP - self.number


class LiveProgress:
    """Reports in; marks for the journal and statuses for the topic out. `due`: whether a status waits to be published."""

    def __init__(self) -> None:
        self._newest: dict[str, ProgressReported] = {}
        self._portions: dict[str, Portion] = {}
        self._due: dict[str, None] = {}
        self._round_ms = 0

    @property
    def due(self) -> bool:
        return bool(self._due)

    def __len__(self) -> int:
        return len(self._newest)

    def offer(self, state: ScheduleState, report: ProgressReported, now_ms: int) -> bool:
        """Takes a report; one of another attempt, or that is not newer, changes nothing. Whether a status became due."""
        job, known = current(state, report), self._newest.get(report.job_id)
        if job is None or is_old(job.progress, report) or is_old(known, report):
            return False
        self._newest[str(report.job_id)] = report
        portion = self._portions.get(str(report.job_id))
        if portion is None or not portion.left or now_ms - portion.published_ms < STATUS_EVERY_MS:
            return False
        self._due[str(report.job_id)] = None
        return True

    def own_record(self, now_ms: int, decisions: Iterable[Event]) -> bool:
        """Takes the numbers that a record of this process gave. Whether a status became due."""
        for decision in decisions:
            match decision:
                case JobProgressed():
                    self._marked(decision, now_ms)
                case JobStatus():
                    self._published(decision, now_ms)
                case JobForgotten(job_id=job_id):
                    self._drop(str(job_id))
        return self.due

    def foreign_record(self) -> None:
        """Another process decides, or did: its numbers may follow from now on, so none of those given before is used any more.

        It may have shown newer reports than those that are known here, too.
        """
        self._newest.clear()
        self._portions.clear()
        self._due.clear()
        self._round_ms = 0

    def marks(self, state: ScheduleState, now_ms: int) -> list[ProgressReported]:
        """Returns the marks for the next record, once in a round: in the order in which the jobs first reported, at most MOST_MARKS.

        A report that came too soon after the status before, and that no other one followed, is due by now.
        """
        if now_ms < self._round_ms:
            return []
        self._round_ms = now_ms + ROUND_MS
        for job_id in [] if len(self._portions) <= len(state.active) else [j for j in self._portions if j not in state.jobs]:
            self._drop(job_id)  # its pool was handed over to another partition
        found: list[ProgressReported] = []
        for job_id, report in list(self._newest.items()):
            job = current(state, report)
            if job is None or is_old(job.progress, report):
                del self._newest[job_id]
                continue
            self._late(job_id, report, now_ms)
            if len(found) < MOST_MARKS:
                found += [_mark_of(report)] if self._asks(job, report, now_ms) else []
            else:
                self._round_ms = now_ms  # the others follow in the next record
        return found

    def behind(self, state: ScheduleState, decisions: Iterable[Event]) -> list[ProgressReported]:
        """The newest reports of jobs on which a record would decide without them. `state` is that before the record.

        Of a pool that is handed over, those of MOST_MARKS jobs, first the ones whose marks are due.
        """
        known: dict[str, Progress] = {}
        decided: dict[str, None] = {}
        for decision in decisions:
            if isinstance(decision, JobProgressed):
                known[str(decision.job_id)] = decision.progress
            elif isinstance(decision, JobStatus):
                decided[str(decision.job_id)] = None
            elif isinstance(decision, PoolHandedOver):
                return self._of_pool(state, decision.pool, decision.at_ms)
        reports = ((job_id, self._newest[job_id]) for job_id in decided if job_id in self._newest)
        return [_mark_of(r) for job_id, r in reports if self._is_news(current(state, r), known.get(job_id), r)]

    def statuses(self, state: ScheduleState, now_ms: int, most: int) -> Iterator[JobStatus]:
        """Takes out the statuses that are due, oldest first, at most so many. `state`: with all that it says published already."""
        for _ in range(min(most, len(self._due))):
            job_id = next(iter(self._due))
            del self._due[job_id]
            job, portion = state.jobs.get(job_id), self._portions.get(job_id)
            if job is None or portion is None or not portion.left or not _has_live_statuses(job, portion):
                continue
            job = self._with_newest(job)
            portion.number += 1
            portion.published_ms = now_ms
            portion.shown = None if job.progress is None else _shown(job.progress)
            yield live_status_of(job, now_ms, portion.number)

    def resend(self) -> None:
        """Statuses that were taken out may not be published: the newest of each job is due again, under a number that was not used."""
        for job_id, portion in self._portions.items():
            if portion.shown is not None:
                portion.shown = None
                self._due[job_id] = None

    def _late(self, job_id: str, report: ProgressReported, now_ms: int) -> None:
        portion = self._portions.get(job_id)
        if portion is not None and portion.shown != _shown(report) and now_ms - portion.published_ms >= STATUS_EVERY_MS:
            self._due[job_id] = None

    def _of_pool(self, state: ScheduleState, pool: str, now_ms: int) -> list[ProgressReported]:
        known = ((current(state, report), report) for report in self._newest.values())
        news = [(job, r) for job, r in known if job is not None and job.pool == pool and not is_old(job.progress, r)]
        news.sort(key=lambda item: not self._asks(item[0], item[1], now_ms))
        return [_mark_of(r) for _, r in news[:MOST_MARKS]]

    def _asks(self, job: Job, report: ProgressReported, now_ms: int) -> bool:
        begins = isinstance(job.phase, Scheduled | Initializing) or job.reason == NO_PROGRESS
        portion = self._portions.get(str(job.job_id))
        spent = portion is None or portion.left < _SPARE or now_ms - portion.marked_ms >= MARK_EVERY_MS
        return begins or spent or changes_decisions(job, report)

    def _is_news(self, job: Job | None, decided: Progress | None, report: ProgressReported) -> bool:
        return job is not None and not is_old(job.progress, report) and not is_old(decided, report)

    def _marked(self, mark: JobProgressed, now_ms: int) -> None:
        job_id, begin = str(mark.job_id), mark.live_seq
        portion = self._portions.get(job_id)
        if begin is not None:
            published_ms, shown = (0, None) if portion is None else (portion.published_ms, portion.shown)
            self._portions[job_id] = Portion(begin, begin, now_ms, published_ms, shown)
            if shown != _shown(mark.progress):
                self._due[job_id] = None
        elif portion is not None:
            portion.marked_ms = now_ms

    def _published(self, status: JobStatus, now_ms: int) -> None:
        job_id, old = str(status.job_id), self._portions.pop(str(status.job_id), None)
        self._due.pop(job_id, None)
        if status.live_room:
            self._portions[job_id] = Portion(status.public_seq, status.public_seq, now_ms if old is None else old.marked_ms, now_ms)

    def _with_newest(self, job: Job) -> Job:
        report = self._newest.get(str(job.job_id))
        if report is None or report.epoch != job.epoch or is_old(job.progress, report):
            return job
        return job.model_copy(update={"progress": Progress(**{name: getattr(report, name) for name in Progress.model_fields})})

    def _drop(self, job_id: str) -> None:
        self._newest.pop(job_id, None)
        self._portions.pop(job_id, None)
        self._due.pop(job_id, None)


def _mark_of(report: ProgressReported) -> ProgressReported:
    """A report as the journal keeps it: without what only its reader of that moment wants."""
    kept = {*AttemptReport.model_fields, *Progress.model_fields, "rank"}
    return ProgressReported.model_validate({name: getattr(report, name) for name in kept})


def _shown(progress: Progress | ProgressReported) -> Shown:
    return progress.epoch, progress.step, progress.at_ms


def _has_live_statuses(job: Job, portion: Portion) -> bool:
    return isinstance(job.phase, Running | Checkpointing | Stopping) and job.allotment is not None and job.live_seq == portion.begin
