"""Progress beside the journal: which of it becomes a mark, which statuses follow, and under which numbers."""

from typing import Any

from tests.support.core_world import Driver, admitted, exited, progress, registered, running, stopped
from trainhouse.events import Event, GangAllocated, JobState, JobStatus
from trainhouse.events.model.decisions import JobProgressed
from trainhouse.events.model.handover import PoolHandedOver
from trainhouse.events.wire.topics import STATUS
from trainhouse.scheduler.core.handlers.live_progress import MOST_MARKS, ROUND_MS, LiveProgress
from trainhouse.scheduler.core.handlers.reports import MARK_EVERY_MS, STATUS_EVERY_MS
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.status import LIVE_SINCE, LIVE_STEP


class Story:
    """An owner with its machine; `shown`: the numbers and steps of what was published, in order."""

    def __init__(self, machine: ScheduleMachine | None = None) -> None:
        self.d, self.live = Driver(machine), LiveProgress()
        self.shown: list[tuple[int, int | None]] = []

    def begin(self, job_id: str = "j") -> GangAllocated:
        self.d.feed(registered("a"))
        gang = running(self.d, job_id)
        self.shown = [(s.public_seq, s.step) for s in self.d.all(JobStatus, job_id=job_id)]
        self.live.own_record(self.d.now_ms, [*self.d.records[-1][1]])
        return gang

    def report(self, gang: GangAllocated, step: int, wait_ms: int = 1_000, **more: Any) -> bool:
        self.d.now_ms += wait_ms
        return self.live.offer(self.d.state, progress(gang, step, at_ms=self.d.now_ms, **more), self.d.now_ms)

    def turn(self, *events: Event) -> list[Event]:
        """A record as the owner makes it, if there is any, and what is published then."""
        marks = self.live.marks(self.d.state, self.d.now_ms)
        decided: list[Event] = []
        if marks or events:
            foreseen = self.d.machine.decide(self.d.state, self.d.now_ms, [self.d._input(e) for e in events])
            marks = [*marks, *self.live.behind(self.d.state, foreseen)]
            decided = self.d.feed(*events, marks=marks)
            self.live.own_record(self.d.now_ms, decided)
            self.shown += [(e.event.status_seq, e.event.step) for e in self._new_effects(decided)]
        self.shown += [(s.status_seq, s.step) for s in self.live.statuses(self.d.state, self.d.now_ms, 100)]
        assert [n for n, _ in self.shown] == sorted({n for n, _ in self.shown}), self.shown
        return decided

    def _new_effects(self, decided: list[Event]) -> list[Any]:
        count = sum(isinstance(x, JobStatus) for x in decided)
        return [e for e in self.d.effects if e.topic == STATUS][-count:] if count else []


def test_a_status_follows_each_report_and_the_journal_holds_one_mark_a_minute() -> None:
    story = Story()
    gang = story.begin()
    for step in range(2, 302):
        story.report(gang, step)
        story.turn()
    assert [step for _, step in story.shown[-300:]] == list(range(2, 302))
    marks = story.d.all(JobProgressed)
    assert len(marks) <= 2 + 300_000 // MARK_EVERY_MS and len(story.d.all(JobStatus, state=JobState.RUNNING)) == 1


def test_a_status_comes_no_more_often_than_before() -> None:
    story = Story()
    gang = story.begin()
    for step in range(2, 102):
        story.report(gang, step, wait_ms=STATUS_EVERY_MS // 3)
        story.turn()
    assert len(story.shown) <= 5 + 34


def test_what_ends_a_job_rests_on_its_newest_progress() -> None:
    story = Story()
    gang = story.begin()
    story.report(gang, 55, wait_ms=5_000)
    story.turn()
    story.report(gang, 56, wait_ms=100)
    ended = story.turn(exited(gang, 0), *(stopped(gang, p.node_id) for p in gang.placements))
    final = [x for x in ended if isinstance(x, JobStatus)][-1]
    assert (final.state, final.step) == (JobState.SUCCEEDED, 56) and story.shown[-1] == (final.public_seq, 56)
    assert len(story.live) == 0 and not story.live.due


def test_begins_by_what_comes_beside_control_too() -> None:
    story = Story()
    d = story.d
    d.feed(registered("a"), admitted("j"))
    gang = d.last(GangAllocated)
    story.report(gang, 1)
    story.turn()
    assert d.status("j").state is JobState.RUNNING and d.status("j").step == 1


def test_another_owner_uses_none_of_the_numbers_of_the_one_before() -> None:
    story = Story()
    gang = story.begin()
    for step in range(2, 9):
        story.report(gang, step)
        story.turn()
    before, story.live = story.live, LiveProgress()
    story.report(gang, 10)
    story.turn()
    assert story.shown[-1][0] > 6 and story.shown[-1][1] == 10
    before.foreign_record()
    assert not before.offer(story.d.state, progress(gang, 11, at_ms=story.d.now_ms + 5_000), story.d.now_ms + 5_000)
    assert list(before.statuses(story.d.state, story.d.now_ms, 9)) == []


def test_numbers_that_are_used_up_are_followed_by_a_mark() -> None:
    story = Story()
    gang = story.begin()
    for step in range(2, 2 + 3 * LIVE_STEP):
        story.report(gang, step, wait_ms=STATUS_EVERY_MS)
        story.turn()
    assert [step for _, step in story.shown[5:]] == list(range(3, 2 + 3 * LIVE_STEP))


def test_reports_of_others_and_of_before_are_left_out() -> None:
    story = Story()
    gang = story.begin()
    assert not story.report(gang.model_copy(update={"epoch": 7}), 9) and not story.report(gang.model_copy(update={"job_id": "x"}), 9)
    assert story.report(gang, 9)
    assert not story.live.offer(story.d.state, progress(gang, 8, at_ms=story.d.now_ms - 500), story.d.now_ms)
    assert len(story.live) == 1


def test_marks_of_many_jobs_are_spread_over_records() -> None:
    d, live = Driver(), LiveProgress()
    d.feed(registered("a", slots=MOST_MARKS + 10))
    gangs = [running(d, f"j{n}") for n in range(MOST_MARKS + 10)]
    for gang in gangs:
        live.offer(d.state, progress(gang, 5, at_ms=d.now_ms + 5), d.now_ms)
    first = live.marks(d.state, d.now_ms)
    live.own_record(d.now_ms, d.mark(*first))
    second = live.marks(d.state, d.now_ms)
    live.own_record(d.now_ms, d.mark(*second))
    assert (len(first), len(second)) == (MOST_MARKS, 10)
    assert live.marks(d.state, d.now_ms) == [] and live.marks(d.state, d.now_ms + ROUND_MS) == []


def test_of_a_job_whose_pool_left_nothing_is_kept() -> None:
    story = Story()
    story.begin()
    assert story.live._portions
    story.d.state.drop_pool("default", story.d.now_ms)
    assert story.live.marks(story.d.state, story.d.now_ms + ROUND_MS) == [] and not story.live._portions and not story.live.due


def test_until_an_update_is_finished_each_status_stands_in_the_journal_as_the_version_before_writes_it() -> None:
    story = Story(ScheduleMachine().at(LIVE_SINCE - 1))
    gang = story.begin()
    for step in range(2, 22):
        story.report(gang, step)
        story.turn()
    assert [step for _, step in story.shown[-20:]] == list(range(2, 22))
    assert not any(s.live_room for s in story.d.all(JobStatus)) and not any(p.live_seq for p in story.d.all(JobProgressed))
    assert story.d.state.job("j").live_seq is None
    numbers = [s.status_seq for s in story.d.all(JobStatus, job_id="j")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_status_that_was_not_published_is_due_again_without_another_report() -> None:
    story = Story()
    gang = story.begin()
    for step in (2, 3):
        story.report(gang, step)
        story.turn()
    story.report(gang, 4)
    lost = list(story.live.statuses(story.d.state, story.d.now_ms, 100))
    assert [s.step for s in lost] == [4] and not story.live.due
    story.live.resend()
    assert story.live.due
    [again] = story.live.statuses(story.d.state, story.d.now_ms, 100)
    assert again.step == 4 and again.status_seq > lost[0].status_seq
    story.live.own_record(story.d.now_ms, story.d.mark(progress(gang, 5, at_ms=story.d.now_ms)))
    [taken] = story.live.statuses(story.d.state, story.d.now_ms, 100)
    story.live.marks(story.d.state, story.d.now_ms + 2_000)
    story.live.resend()
    [again] = story.live.statuses(story.d.state, story.d.now_ms + 2_000, 100)
    assert again.step == 5 and again.status_seq > taken.status_seq


def test_a_move_asks_for_the_newest_progress_of_its_pool_due_marks_first_and_so_many_as_a_record_holds() -> None:
    d, live = Driver(), LiveProgress()
    d.feed(registered("a", slots=MOST_MARKS + 3))
    gangs = [running(d, f"j{n}") for n in range(MOST_MARKS + 3)]
    live.own_record(d.now_ms, d.mark(*(progress(gang, 6, at_ms=d.now_ms) for gang in gangs)))
    for gang in gangs:
        live.offer(d.state, progress(gang, 7, at_ms=d.now_ms + 10, saved_alone=True if gang is gangs[-1] else None), d.now_ms)
    about = {"move": "m", "to_partition": 1, "parts": 1, "sha256": "0" * 64, "jobs": 1, "nodes": 1, "at_ms": d.now_ms}
    marks = live.behind(d.state, [PoolHandedOver.model_validate(about | {"pool": "default"})])
    assert len(marks) == MOST_MARKS and {m.step for m in marks} == {7}
    assert marks[0].job_id == gangs[-1].job_id and marks[0].saved_alone
    assert live.behind(d.state, [PoolHandedOver.model_validate(about | {"pool": "other"})]) == []


def test_a_status_that_says_more_room_than_it_has_is_the_first_of_its_job() -> None:
    """Any client of Kafka may write one; its row has no negative number."""
    status = JobStatus.model_validate({"job_id": None, "submission_id": "x", "status_seq": 0, "state": "PENDING", "live_room": 1})
    assert status.public_seq == 0
