"""The wait for a job whose pool is on its way between two partitions: real schedulers' states, in virtual time."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.unit.scheduler.core.handlers.test_core_handover import Partition, move, two
from trainhouse.client.errors import ChangeRefusedError, JobEndedError
from trainhouse.client.kafka.scheduled_job import MOVE_WAIT_S, JobReads, scheduled_job
from trainhouse.events import CancelJob, JobId, JobState
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import ScheduleState

RUNS = JobId("runs")


@dataclass
class Journals:
    """Two partitions whose states are read; `events`: what happens at which second of the reader's clock."""

    events: dict[float, Callable[[], object]] = field(default_factory=dict)
    published: JobState = JobState.RUNNING
    now_s: float = 0.0
    asked: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partitions: tuple[Partition, Partition] = two()

    def find(self, job_id: JobId = RUNS, partition: int | None = 0) -> Job:
        reads = JobReads(self._folded, lambda: self.published, lambda: self.now_s, self._sleep)
        return scheduled_job(job_id, partition, reads)

    def _folded(self, partition: int | None) -> list[ScheduleState]:
        self.asked.append(partition)
        return [p.state for p in self.partitions if partition in (None, p.number)]

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for due_s in sorted(at for at in self.events if at <= self.now_s):
            self.events.pop(due_s)()


def test_a_job_on_its_way_is_waited_for_and_found_where_it_came_to() -> None:
    journals = Journals()
    a, b = journals.partitions
    a.feed(move())
    journals.events[3.0] = lambda: a.passes_on_to(b)
    assert journals.find() is b.state.jobs[RUNS]
    assert RUNS not in a.state.jobs and journals.now_s == 3.0
    assert journals.asked[:3] == [0, None, 0], "the partition that it was on is looked at first, then all"


def test_a_move_that_takes_long_is_named_and_the_wait_ends() -> None:
    journals = Journals()
    a, _ = journals.partitions
    a.feed(move())
    with pytest.raises(ChangeRefusedError, match="pool default of runs is being moved: partition 0 has handed it over, and"):
        journals.find()
    assert MOVE_WAIT_S < journals.now_s < MOVE_WAIT_S + 2


def test_a_job_that_ends_as_soon_as_it_came_there_has_ended() -> None:
    journals = Journals()
    a, b = journals.partitions
    a.feed(move())

    def taken_and_cancelled() -> None:
        a.passes_on_to(b)
        b.feed(CancelJob(job_id=JobId("waits")))
        journals.published = JobState.CANCELLED

    journals.events[1.0] = taken_and_cancelled
    with pytest.raises(JobEndedError, match="CANCELLED"):
        journals.find(JobId("waits"))
    assert journals.now_s == 1.0


def test_a_job_that_is_nowhere_has_ended_and_nothing_is_waited_for() -> None:
    journals = Journals(published=JobState.SUCCEEDED)
    for partition in (0, None):
        with pytest.raises(JobEndedError, match="SUCCEEDED"):
            journals.find(JobId("never"), partition)
    assert journals.now_s == 0 and journals.asked == [0, None, None]
