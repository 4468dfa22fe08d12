"""The scheduler's machine, one job at a time: lives, ends, restarts."""

from tests.support.core_world import Driver, admitted, exited, progress, registered, run_through, started, stopped
from trainhouse.events import GangAllocated, GangReleased, JobState, JobStatus
from trainhouse.scheduler.core.state.status import LIVE_ROOM


def test_a_job_runs_and_succeeds() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2))
    gang = d.last(GangAllocated)
    assert [p.node_id for p in gang.placements] == ["a"]
    assert (gang.master_address, gang.master_port, gang.epoch, gang.attempt) == ("a.local", 29500, 1, 0)
    run_through(d, gang)
    states = [s.state for s in d.all(JobStatus, job_id="j")]
    assert states == [JobState.PENDING, JobState.SCHEDULED, JobState.INITIALIZING, JobState.RUNNING, JobState.SUCCEEDED]
    assert [s.status_seq for s in d.all(JobStatus, job_id="j")] == [1, 2, 3, 4 + LIVE_ROOM, 5 + LIVE_ROOM]
    public = [e.event for e in d.effects if isinstance(e.event, JobStatus)]
    assert [(s.status_seq, s.live_room) for s in public] == [(n, None) for n in (1, 2, 3, 4, 5 + LIVE_ROOM)]
    assert d.state.jobs == {} and d.state.nodes["a"].holds == ()


def test_a_failed_rank_restarts_the_gang_when_its_node_says_that_nothing_is_left() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2, limits={"restarts": 1}))
    gang = d.last(GangAllocated)
    d.feed(started(gang, "a"), progress(gang, 5))
    d.feed(exited(gang, 1, 3, reason="boom"))
    assert d.last(GangReleased).node_ids == ("a",)
    assert len(d.all(GangAllocated)) == 1
    d.feed(stopped(gang, "a"))
    again = d.last(GangAllocated)
    assert (again.attempt, again.epoch) == (1, 2)
    assert d.status("j").restarts == 1
    d.feed(started(again, "a"), exited(again, 0, 3, reason="boom"), stopped(again, "a"))
    final = d.status("j")
    assert final.state is JobState.FAILED
    assert "rank 0 on node a exited with code 3" in final.reason and "boom" in final.reason and "restarts" in final.reason
