"""Verdicts, notices and sessions that give up: what the scheduler's machine does about them, and what it leaves alone."""

import pytest

from tests.support.core_world import (
    Driver,
    admitted,
    degraded,
    diverged,
    exited,
    going,
    gone,
    hung,
    lost,
    nodes_of,
    noticed,
    progress,
    registered,
    running,
    saved,
    started,
)
from trainhouse.events import (
    CancelJob,
    CheckpointRequested,
    FailureBlamed,
    GangAllocated,
    GangReleased,
    JobState,
    JobStatus,
    NodeDesiredState,
    NodeNoticed,
    NodeRestricted,
    Restriction,
    UncordonNode,
)
from trainhouse.events.model.decisions import EvidenceFound
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.attempts.data_skips import SKIPS_SINCE
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.state_rows import nodes


def fleet(*names: str, slots: int = 2) -> Driver:
    d = Driver()
    d.feed(*(registered(name, slots) for name in names))
    return d


# ---- gangs that hang


def test_a_gang_that_hangs_is_killed_and_starts_again_at_once_at_no_cost() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(hung(gang))
    assert d.last(GangReleased).grace_s == 0.5 and not d.all(CheckpointRequested)
    assert "the gang hung after step 7: no step for 6.5 s" in d.status("j").reason
    d.feed(*(exited(gang, r, None, 9) for r in (0, 1)), *gone(gang))
    assert d.last(GangAllocated).epoch == 2 and d.state.jobs["j"].tally.failures == 0
    assert d.status("j").restarts == 1
    verdict = d.last(FailureBlamed)
    assert (verdict.job_id, verdict.epoch) == ("j", 1) and verdict.failed_at_ms is not None
    assert [e.topic for e in d.effects if e.event == verdict] == [topics.VERDICTS]


@pytest.mark.parametrize("begun", [False, True])
def test_a_gang_that_hangs_before_it_said_a_word_starts_again_too(begun: bool) -> None:
    d = fleet("a")
    d.feed(admitted("j", ranks=2, limits={"restarts": 0}))
    gang = d.last(GangAllocated)
    if begun:
        d.feed(started(gang, "a"))
    d.feed(hung(gang, step=None, ranks=()))
    assert d.status("j").reason.startswith("the gang hung: no step for 6.5 s")
    d.feed(*gone(gang))
    assert d.last(GangAllocated).epoch == 2 and d.last(FailureBlamed).rule == "hung-together"


def test_a_hang_counts_where_the_gang_has_ranks_on_the_node_that_says_so() -> None:
    """Any node's heartbeats may list any attempt: those of one that was never given it ended the job."""
    d = fleet("a", "zz")
    gang = running(d, "j", ranks=2)
    own = nodes_of(gang)[0]
    d.feed(hung(gang, node_id="zz" if own == "a" else "a"))
    assert d.status("j").state is JobState.RUNNING and not d.all(GangReleased)
    d.feed(hung(gang, node_id=own))
    assert "the gang hung" in d.status("j").reason and d.all(GangReleased)


def test_a_gang_that_hangs_again_before_its_next_checkpoint_uses_up_its_restarts() -> None:
    d = fleet("a")
    running(d, "j", ranks=2, limits={"restarts": 1})
    for step in (7, 8):
        gang = d.last(GangAllocated)
        d.feed(hung(gang, step=step), *gone(gang))
        d.tick(60_000)
    assert d.state.jobs["j"].tally.failures == 1
    gang = d.last(GangAllocated)
    d.feed(saved(gang, 5))
    d.feed(hung(gang, step=9), *gone(gang))
    d.tick(60_000)
    assert d.state.jobs["j"].tally.failures == 1, "a checkpoint in between: it got somewhere"
    gang = d.last(GangAllocated)
    d.feed(hung(gang, step=10), *gone(gang))
    final = d.status("j")
    assert final.state is JobState.FAILED and "limits.restarts" in final.reason and "commit 5, step 50" in final.reason


@pytest.mark.parametrize("trouble", ["stopping", "stale", "ended"])
def test_a_verdict_on_a_gang_that_stops_or_ended_is_ignored(trouble: str) -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    match trouble:
        case "stopping":
            d.feed(CancelJob.model_validate({"job_id": "j"}))
        case "stale":
            d.feed(hung(gang), *gone(gang))
        case "ended":
            d.feed(exited(gang, 0), exited(gang, 1), *gone(gang))
    assert d.feed(hung(gang)) == []


# ---- notices


def test_a_node_that_goes_away_gets_nothing_new_and_its_gangs_save_in_time_and_go_elsewhere_at_once() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(noticed(registered("a"), d.now_ms + 40_000))
    request = d.last(CheckpointRequested)
    assert request.then_stop and request.deadline_ms == d.now_ms + 30_000, "a quarter of the time is left for the end"
    assert "node a goes away (file): spot" in d.status("j").reason
    assert [e.topic for e in d.effects if isinstance(e.event, NodeNoticed)] == [topics.VERDICTS]
    d.feed(saved(gang, 1), exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    again = d.last(GangAllocated)
    assert (nodes_of(again), again.epoch) == (["b"], 2)
    tally = d.state.jobs["j"].tally
    assert (tally.failures, tally.losses, d.status("j").restarts) == (0, 0, 0)
    d.feed(admitted("k", ranks=2))
    assert d.status("k").state is JobState.PENDING
    d.feed(registered("a"))
    assert d.status("k").state is JobState.PENDING, "the same start of its agent still goes away"
    d.feed(registered("a", incarnation="inc-2"))
    assert nodes_of(d.last(GangAllocated, job_id="k")) == ["a"]


def test_a_notice_of_an_earlier_start_and_a_later_deadline_change_nothing() -> None:
    d = fleet("a", "b")
    running(d, "j", ranks=2)
    assert d.feed(noticed(registered("a", incarnation="inc-0"), 5)) == []
    assert d.feed(noticed(registered("a", boot_id="boot-0"), 5)) == [] and d.feed(noticed(registered("x"), 5)) == []
    d.feed(noticed(registered("a"), d.now_ms + 60_000))
    assert d.feed(noticed(registered("a"), d.now_ms + 90_000)) == []
    again = d.machine.load(d.machine.dump(d.state))
    assert again.nodes["a"].notice is not None and not again.book.cluster.layout.slots[0].open  # type: ignore[union-attr]
    d.feed(lost(registered("b")))
    assert d.feed(noticed(registered("b"), d.now_ms)) == []


def test_a_notice_without_time_left_stops_the_gang_at_once() -> None:
    d = fleet("a")
    running(d, "j", ranks=2)
    d.feed(noticed(registered("a"), d.now_ms - 1))
    assert not d.all(CheckpointRequested) and d.status("j").state is JobState.PREEMPTED


# ---- devices


def test_memory_errors_close_the_device_and_its_gang_saves_and_moves() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(degraded("a-1"))
    request = d.last(CheckpointRequested)
    assert request.deadline_ms == d.now_ms + 120_000 and "moves off device a-1 of node a" in request.reason
    d.feed(saved(gang, 1), *gone(gang))
    assert nodes_of(d.last(GangAllocated)) == ["b"]
    d.feed(admitted("k", ranks=1), admitted("l", ranks=1))
    assert d.last(GangAllocated).placements[0].devices == ("a-0",) and d.status("l").state is JobState.PENDING
    row = next(r for r in nodes(d.state) if r["node_id"] == "a")
    assert (row["devices"]["cpu"], row["closed_devices"]) == ({"total": 2, "held": 1, "free": 0, "closed": 1}, ["a-1"])
    loaded = d.machine.load(d.machine.dump(d.state))
    assert loaded.book.cluster.free_bits == d.state.book.cluster.free_bits and loaded.book.cluster.shut == {0: 0b10}
    assert d.feed(degraded("a-1")) == [], "it is closed already"
    d.feed(UncordonNode.model_validate({"pool": "default", "node_id": "a"}))
    assert d.last(NodeRestricted).restriction is Restriction.NONE, "whoever asked is told"
    assert d.last(GangAllocated, job_id="l").placements[0].devices == ("a-1",)


def test_a_reboot_opens_a_bad_device_again() -> None:
    d = fleet("a")
    d.feed(degraded("a-0"))
    d.feed(admitted("j", ranks=2))
    assert d.status("j").state is JobState.PENDING
    d.feed(registered("a", boot_id="boot-2"))
    assert d.status("j").state is JobState.SCHEDULED


@pytest.mark.parametrize("fault", ["THROTTLED", "SLOW_CLOCK"])
def test_a_slow_device_moves_nothing_and_is_remembered_for_the_judgement(fault: str) -> None:
    d = fleet("a")
    running(d, "j", ranks=2)
    d.feed(degraded("a-0", fault), degraded("a-0", fault))
    assert d.status("j").state is JobState.RUNNING and d.state.book.cluster.shut == {}
    allotment = d.state.jobs["j"].allotment
    assert allotment is not None and [x.fault for x in allotment.evidence.degraded] == [fault]
    assert allotment.evidence.failed_at_ms is None
    assert d.feed(degraded("a-0", boot_id="boot-0")) == [] and d.feed(degraded("x-0")) == []


# ---- loss


def test_a_diverged_loss_ends_the_job_and_names_the_last_good_checkpoint() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, limits={"restarts": 9})
    d.feed(saved(gang, 3), saved(gang, 4))
    d.feed(diverged(gang, 3))
    assert d.last(GangReleased).grace_s == 15.0, "a save that is under way may end"
    d.feed(exited(gang, 0, 1), exited(gang, 1, 1), *gone(gang))
    final = d.status("j")
    assert final.state is JobState.FAILED
    assert "its loss diverged at step 55: nan" in final.reason and "Commit 3 is its last good checkpoint, and is kept" in final.reason
    assert d.last(FailureBlamed).job_id == "j"


def test_a_rollback_goes_back_so_many_checkpoints_so_many_times_and_the_bound_stays_until_the_next_save() -> None:
    d = fleet("a")
    rule = {"action": "rollback", "checkpoints": 2, "rollbacks": 1}
    gang = running(d, "j", ranks=2, limits={"restarts": 0}, divergence=rule)
    d.feed(*(saved(gang, n) for n in (1, 2, 5, 6)))
    d.feed(exited(gang, 0, 1), diverged(gang, 5), exited(gang, 1, 1), *gone(gang))
    second = d.last(GangAllocated)
    assert (second.epoch, second.restore_at_most) == (2, 2), "5 and 2: two checkpoints back from the last good one"
    reasons = [s.reason for s in d.all(JobStatus, job_id="j", state=JobState.PENDING)]
    assert "goes back to commit 2: its loss diverged" in reasons[-1]
    tally = d.state.jobs["j"].tally
    assert (tally.failures, tally.rollbacks) == (0, 1)
    d.feed(registered("a", incarnation="inc-2", running=[{"job_id": "j", "attempt": 1, "epoch": 2}]))
    assert d.last(NodeDesiredState).allocations == (second,)
    d.feed(exited(second, 0, None), *gone(second))
    d.tick(60_000)
    third = d.last(GangAllocated)
    assert (third.epoch, third.restore_at_most) == (3, 2), "it never saved: the bound counts still"
    d.feed(saved(gang, 7))
    assert d.state.jobs["j"].restore_at_most == 2, "a late word of an earlier attempt"
    d.feed(saved(third, 9))
    assert d.state.jobs["j"].restore_at_most is None
    d.feed(diverged(third, 9), *gone(third))
    assert d.status("j").state is JobState.FAILED and "It went back 1 times" in d.status("j").reason


def test_a_job_that_diverges_before_its_first_checkpoint_begins_anew() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "rollback"})
    d.feed(diverged(gang), *gone(gang))
    assert d.last(GangAllocated).restore_at_most == 0


def data(first: int, end: int, per_step: int = 8, loader: int = 0, shift: int = 0) -> dict[str, object]:
    """Data of some steps of an attempt that began with position `shift` + its step's."""
    positions = {"first_position": shift + first * per_step, "end_position": shift + end * per_step}
    return {"loader": loader, "epoch": 1, "first_step": first, "end_step": end, "reason": "its loss was nan"} | positions


def test_data_over_which_the_loss_diverged_are_left_out_by_all_later_attempts() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, limits={"restarts": 0}, divergence={"action": "skip_data"})
    d.feed(saved(gang, 1), saved(gang, 2))
    d.feed(exited(gang, 0, 1), diverged(gang, 2, data=[data(53, 55)]), exited(gang, 1, 1), *gone(gang))
    second = d.last(GangAllocated)
    assert (second.epoch, second.restore_at_most) == (2, 2)
    assert [x.model_dump() for x in second.skip_data] == [data(53, 55)]
    reasons = [s.reason for s in d.all(JobStatus, job_id="j", state=JobState.PENDING)]
    assert "goes back to commit 2 and leaves out positions 424 to 439 of loader 0 (steps 53 to 54)" in reasons[-1]
    tally = d.state.jobs["j"].tally
    assert (tally.failures, tally.rollbacks) == (0, 1)
    d.feed(registered("a", incarnation="inc-2", running=[{"job_id": "j", "attempt": 1, "epoch": 2}]))
    assert d.last(NodeDesiredState).allocations == (second,)
    d.feed(saved(second, 3))
    d.feed(exited(second, 0, None), *gone(second))
    d.tick(60_000)
    third = d.last(GangAllocated)
    assert third.epoch == 3 and third.skip_data == second.skip_data and third.restore_at_most is None
    d.feed(diverged(third, 3, data=[data(80, 82, shift=16), data(10, 12, loader=1)]), *gone(third))
    fourth = d.last(GangAllocated)
    assert fourth.epoch == 4 and [x.first_step for x in fourth.skip_data] == [53, 80, 10]


@pytest.mark.parametrize(
    ("again", "found"),
    [
        (data(54, 56, shift=8), "Positions 424 to 439 of loader 0 were left out already (steps 53 to 54 of attempt 0)"),
        (data(53, 55, shift=16), "and it diverged again right there, at positions 440 to 455 (steps 53 to 54)"),
        (data(51, 53), "Raise divergence.skip_steps"),
        (data(53, 55, loader=1), ""),
        (data(54, 56, shift=17), ""),
    ],
)
def test_nothing_is_left_out_twice_at_one_place(again: dict[str, object], found: str) -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "skip_data"})
    d.feed(saved(gang, 1), diverged(gang, 1, data=[data(53, 55)]), *gone(gang))
    second = d.last(GangAllocated)
    d.feed(diverged(second, 1, data=[again]), *gone(second))
    if not found:
        assert d.last(GangAllocated).epoch == 3
        return
    final = d.status("j")
    assert final.state is JobState.FAILED and found in final.reason and "Commit 1 is its last good checkpoint" in final.reason


def test_data_are_left_out_so_many_times() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "skip_data", "skips": 2})
    for step in (10, 20):
        d.feed(diverged(gang, None, data=[data(step, step + 1)]), *gone(gang))
        gang = d.last(GangAllocated)
    assert gang.epoch == 3 and gang.restore_at_most == 0
    d.feed(diverged(gang, None, data=[data(30, 31)]), *gone(gang))
    assert d.status("j").state is JobState.FAILED
    assert "It left out data 2 times, as often as divergence.skips allows" in d.status("j").reason


def test_a_job_whose_loaders_cannot_leave_out_data_ends() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "skip_data"})
    d.feed(saved(gang, 1), diverged(gang, 1), *gone(gang))
    final = d.status("j")
    assert final.state is JobState.FAILED and "needs each loader that training reads from to be a session.loader" in final.reason


def test_a_rollback_leaves_out_nothing() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "rollback"})
    d.feed(saved(gang, 1), diverged(gang, 1, data=[data(53, 55)]), *gone(gang))
    assert d.last(GangAllocated).epoch == 2 and d.last(GangAllocated).skip_data == ()


def test_before_its_level_no_data_are_left_out_and_the_journal_has_no_such_field() -> None:
    d = Driver(ScheduleMachine().at(SKIPS_SINCE - 1))
    d.feed(registered("a", 2))
    gang = running(d, "j", ranks=2, divergence={"action": "skip_data"})
    d.feed(saved(gang, 1), diverged(gang, 1, data=[data(53, 55)]), *gone(gang))
    assert d.status("j").state is JobState.FAILED
    assert not any(b'"data":' in e.model_dump_json().encode() for e in d.all(EvidenceFound))


def test_a_divergence_that_nobody_watches_for_changes_nothing() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2, divergence={"action": "ignore"})
    assert d.feed(diverged(gang)) == []


def test_a_gang_that_diverges_while_it_makes_way_is_judged_for_that() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    d.feed(noticed(registered("a"), d.now_ms + 40_000))
    d.feed(diverged(gang, None), exited(gang, 0, 1), exited(gang, 1, 1), *gone(gang))
    assert d.status("j").state is JobState.FAILED and "There is no checkpoint from before that" in d.status("j").reason


def test_a_gang_that_hangs_while_it_is_asked_to_save_is_not_waited_for() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    d.feed(noticed(registered("a"), d.now_ms + 60_000))
    assert d.status("j").state is JobState.CHECKPOINTING
    d.feed(hung(gang))
    assert d.last(GangReleased).grace_s == 0.5
    d.feed(*gone(gang))
    assert nodes_of(d.last(GangAllocated)) == ["b"] and not d.all(FailureBlamed), "it makes way, as it was asked to"
    assert d.state.jobs["j"].tally.restarts == 0


def test_a_gang_that_saves_is_hurried_by_whoever_has_less_time() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    d.feed(degraded("a-1"))
    d.feed(noticed(registered("a"), d.now_ms + 40_000))
    assert len(d.all(CheckpointRequested)) == 1 and "less time is left, because node a goes away" in d.status("j").reason
    d.tick(29_000)
    assert not d.all(GangReleased)
    d.tick(1_001)
    released = d.last(GangReleased)
    assert (released.epoch, "moves off device a-1" in released.reason) == (gang.epoch, True)


# ---- ranks that are left when others die


def test_a_gang_of_which_one_rank_can_save_for_all_has_the_time_for_it() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2)
    d.feed(progress(gang, 12, at_ms=d.now_ms + 1, saved_alone=True), exited(gang, 1, None, 9))
    assert d.last(GangReleased).grace_s == 30.0
    d.feed(*gone(gang))
    again = going(d, "j")
    d.feed(exited(again, 1, None, 9))
    assert d.last(GangReleased).grace_s == 2.0, "this attempt has not said that it can"


def test_of_a_gang_over_nodes_the_first_end_is_blamed_and_all_nodes_tell_what_their_ranks_have() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=4)
    first, second = (p.node_id for p in gang.placements)
    words = "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:48546."
    # The other node's agent is quicker to tell of a rank that only saw its peer leave.
    d.feed(progress(gang, 12, at_ms=d.now_ms + 1, saved_alone=True), exited(gang, 1, 1, None, words), exited(gang, 3, None, 9))
    (released,) = d.all(GangReleased)
    assert (released.for_survivors, released.grace_s, released.node_ids) == (True, 30.0, (first, second))
    d.feed(saved(gang, 5), exited(gang, 0, 1, None, words), exited(gang, 2, 1, None, words), *gone(gang))
    blamed = d.last(FailureBlamed)
    assert (blamed.rank, blamed.node_id) == (3, second), blamed
    d.tick(60_000)
    again = d.last(GangAllocated)
    assert again.epoch == 2
    d.feed(CancelJob.model_validate({"job_id": "j"}))
    assert not d.last(GangReleased).for_survivors


def test_whatever_ranks_say_at_their_end_followed_from_the_loss_that_diverged() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2)
    words = "Traceback (most recent call last):\ntrainhouse.workers.session.errors.Stopped: 143"
    d.feed(diverged(gang), *(exited(gang, rank, 76, None, words) for rank in (0, 1)), *gone(gang))
    assert d.last(FailureBlamed).rule == "loss-diverged"
