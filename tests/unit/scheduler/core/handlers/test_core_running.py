"""When a job is RUNNING: with its first progress, and soon after its ranks' start where no session will report any."""

import pytest

from tests.support.core_world import Driver, admitted, progress, registered, started
from trainhouse.events import GangAllocated, JobState, JobStatus, SessionOpened
from trainhouse.scheduler.core.handlers.reports import NO_PROGRESS
from trainhouse.scheduler.core.state.deadlines import QUIET_START_MS, SESSION_START_MS


def opened(gang: GangAllocated) -> SessionOpened:
    about = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "node_id": gang.placements[0].node_id, "pool": gang.pool}
    return SessionOpened.model_validate(about | {"rank": 0, "at_ms": 1})


@pytest.fixture
def fleet() -> tuple[Driver, GangAllocated]:
    d = Driver()
    d.feed(registered("a", 1), registered("b", 1))
    d.feed(admitted("j", ranks=2))
    return d, d.last(GangAllocated)


def test_a_plain_script_is_running_within_ten_seconds_of_its_last_ranks_start(fleet: tuple[Driver, GangAllocated]) -> None:
    d, gang = fleet
    d.feed(started(gang, "a"))
    d.tick(60_000)
    assert d.status("j").state is JobState.SCHEDULED
    d.feed(started(gang, "b"))
    d.tick(QUIET_START_MS - 1)
    assert d.status("j").state is JobState.INITIALIZING
    d.tick(1)
    now = d.status("j")
    assert (now.state, now.reason) == (JobState.RUNNING, NO_PROGRESS) and now.running_at_ms == d.now_ms
    assert QUIET_START_MS <= 10_000


@pytest.mark.parametrize("early", [True, False])
def test_a_session_keeps_it_initializing_until_its_first_step(fleet: tuple[Driver, GangAllocated], early: bool) -> None:
    d, gang = fleet
    d.feed(*([opened(gang)] if early else []), started(gang, "a"), started(gang, "b"))
    if not early:
        d.feed(opened(gang), wait_ms=2_000)
    d.feed(opened(gang))
    d.tick(QUIET_START_MS)
    d.tick(1_000)
    assert d.status("j").state is JobState.INITIALIZING
    d.feed(progress(gang, 0, at_ms=d.now_ms))
    assert (d.status("j").state, d.status("j").reason) == (JobState.RUNNING, "")


def test_a_session_that_never_steps_does_not_keep_it_for_ever(fleet: tuple[Driver, GangAllocated]) -> None:
    d, gang = fleet
    d.feed(started(gang, "a"), started(gang, "b"), opened(gang))
    d.tick(SESSION_START_MS)
    assert (d.status("j").state, d.status("j").reason) == (JobState.RUNNING, NO_PROGRESS)


def test_a_session_that_opens_late_changes_nothing(fleet: tuple[Driver, GangAllocated]) -> None:
    d, gang = fleet
    d.feed(started(gang, "a"), started(gang, "b"))
    d.tick(QUIET_START_MS)
    told = len(d.all(JobStatus))
    d.feed(opened(gang))
    assert len(d.all(JobStatus)) == told
    d.feed(progress(gang, 1, at_ms=d.now_ms))
    assert (d.status("j").state, d.status("j").reason) == (JobState.RUNNING, "")
