"""What time brings about: limits of run time, quiet scripts, the bound of statuses."""

import pytest

from tests.support.core_world import Driver, admitted, exited, lost, progress, registered, started, stopped
from trainhouse.events import CheckpointCompleted, CheckpointRequested, GangAllocated, GangReleased, JobState, JobStatus, LaunchFailed
from trainhouse.events.model.decisions import JobProgressed
from trainhouse.scheduler.core.state.status import LIVE_ROOM, LIVE_STEP


def running(**fields: object) -> tuple[Driver, GangAllocated]:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2, **fields))
    gang = d.last(GangAllocated)
    d.feed(started(gang, "a"))
    return d, gang


def saved(gang: GangAllocated, commit: int, **more: object) -> CheckpointCompleted:
    base = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "at_ms": 5, "commit": commit, "step": 10 * commit}
    return CheckpointCompleted.model_validate(base | {"uri": "s3://x", "bytes_total": 1, "bytes_new": 1} | more)


def test_a_job_over_its_run_time_saves_is_released_and_fails_with_that_reason() -> None:
    d, gang = running(limits={"run_time_s": 60, "restarts": 5})
    d.feed(progress(gang, 1))
    d.tick(59_000)
    assert not d.all(CheckpointRequested)
    d.tick(1_000)
    request = d.last(CheckpointRequested)
    assert request.then_stop and request.deadline_ms == d.now_ms + 30_000 and request.node_ids == ("a",)
    assert d.status("j").state is JobState.CHECKPOINTING
    d.feed(saved(gang, 1))
    assert d.last(GangReleased).epoch == gang.epoch
    d.feed(exited(gang, 0, None, 15), stopped(gang, "a"))
    final = d.status("j")
    assert final.state is JobState.FAILED and "limits.run_time_s = 60" in final.reason
    assert final.last_checkpoint is not None and final.last_checkpoint.commit == 1
    assert final.elapsed_s == 60.0


def test_a_save_that_does_not_come_is_waited_for_until_its_deadline() -> None:
    d, gang = running(limits={"run_time_s": 60})
    d.feed(progress(gang, 1))
    d.tick(60_000)
    d.tick(29_999)
    assert not d.all(GangReleased)
    d.tick(1)
    assert len(d.all(GangReleased)) == 1


def test_ranks_that_end_by_themselves_after_their_last_save_end_the_job() -> None:
    d, gang = running(limits={"run_time_s": 60})
    d.feed(progress(gang, 1))
    d.tick(60_000)
    d.feed(exited(gang, 0), exited(gang, 1), stopped(gang, "a"))
    assert d.status("j").state is JobState.FAILED and "run_time_s" in d.status("j").reason


def test_a_script_that_never_spoke_is_released_without_being_asked_to_save() -> None:
    d, _ = running(limits={"run_time_s": 60})
    d.tick(60_000)
    assert not d.all(CheckpointRequested) and len(d.all(GangReleased)) == 1


def test_run_time_is_counted_over_all_attempts() -> None:
    d, gang = running(limits={"run_time_s": 60, "restarts": 5})
    d.now_ms += 59_000
    d.feed(exited(gang, 0, 1))
    d.now_ms += 2_000
    d.feed(stopped(gang, "a"))
    assert d.status("j").state is JobState.FAILED and "run_time_s" in d.status("j").reason


def test_a_quiet_script_counts_as_running_after_a_while() -> None:
    d, _ = running()
    d.tick(9_999)
    assert d.status("j").state is JobState.INITIALIZING
    d.tick(1)
    assert d.status("j").state is JobState.RUNNING


def test_a_script_that_speaks_late_is_no_longer_called_quiet() -> None:
    d, gang = running()
    d.tick(30_000)
    assert "no progress" in d.status("j").reason
    d.feed(progress(gang, 1))
    status = d.status("j")
    assert (status.state, status.reason, status.step, status.running_at_ms) == (JobState.RUNNING, "", 1, d.now_ms)


def test_of_progress_on_control_the_first_the_last_and_one_a_minute_are_decided_on() -> None:
    d, gang = running()
    d.feed(*(progress(gang, s, total_steps=1000, steps_per_s=10.0, loss=1.0 / s) for s in range(1, 101)))
    assert [p.progress.step for p in d.all(JobProgressed)] == [1] and len(d.all(JobStatus, job_id="j", state=JobState.RUNNING)) == 1
    for s in range(101, 230):
        d.feed(progress(gang, s, total_steps=1000, steps_per_s=10.0, loss=0.5), wait_ms=1_000)
    assert [p.progress.step for p in d.all(JobProgressed)] == [1, 160, 220]
    status = d.status("j")
    assert (status.step, status.total_steps, status.loss, status.eta_s) == (220, 1000, 0.5, 78.0)
    d.feed(progress(gang, 231, last=True), exited(gang, 0))
    assert d.all(JobProgressed)[-1].progress.step == 231
    d.feed(progress(gang, 232, saved_alone=True))
    assert d.all(JobProgressed)[-1].progress.saved_alone, "it decides how long survivors are waited for"


def test_what_the_owner_marks_is_decided_on_and_gives_numbers_to_live_statuses() -> None:
    d, gang = running()
    d.feed(progress(gang, 1))
    first = d.status("j")
    assert first.live_room == LIVE_ROOM and d.state.job("j").live_seq == first.public_seq == first.status_seq - LIVE_ROOM
    assert [type(x) for x in d.mark(progress(gang, 2))] == [JobProgressed]
    assert d.state.job("j").live_seq == first.public_seq + LIVE_STEP
    step = 2
    while len(d.all(JobStatus, state=JobState.RUNNING)) == 1:
        step += 1
        d.mark(progress(gang, step))
    assert step > LIVE_ROOM // LIVE_STEP - 3
    assert all(p.live_seq is None or p.live_seq + LIVE_STEP <= first.status_seq for p in d.all(JobProgressed))
    assert d.status("j").public_seq == first.status_seq + 1


def test_older_progress_changes_nothing() -> None:
    d, gang = running()
    d.feed(progress(gang, 7, at_ms=70))
    assert d.feed(progress(gang, 6, at_ms=60)) == []


def test_a_loss_that_is_no_number_is_told_as_it_is_and_survives_a_snapshot() -> None:
    d, gang = running()
    d.feed(progress(gang, 1, loss=float("nan"), total_steps=9, steps_per_s=float("inf")))
    status = d.status("j")
    assert status.loss is not None and status.loss != status.loss and status.eta_s is None
    dumped = d.machine.dump(d.state)
    assert b'"NaN"' in dumped and d.machine.dump(d.machine.load(dumped)) == dumped


def test_a_checkpoint_is_known_by_its_commit_whatever_epoch_tells_of_it() -> None:
    d, gang = running(limits={"restarts": 3})
    d.feed(saved(gang, 2))
    assert d.feed(saved(gang, 2)) == [] and d.feed(saved(gang, 1)) == []
    d.feed(exited(gang, 0, 1), stopped(gang, "a"))
    d.feed(saved(gang, 3))
    checkpoint = d.status("j").last_checkpoint
    assert checkpoint is not None and (checkpoint.commit, checkpoint.step) == (3, 30)


@pytest.mark.parametrize("trouble", ["exit", "lost", "launch", "rebooted"])
def test_what_goes_wrong_during_the_last_save_does_not_bring_the_job_back(trouble: str) -> None:
    d, gang = running(limits={"run_time_s": 60, "restarts": 9})
    d.feed(progress(gang, 1))
    d.tick(60_000)
    about = {"job_id": "j", "attempt": 0, "epoch": 1, "node_id": "a", "pool": "default", "reason": "x", "retryable": True}
    event = {
        "exit": exited(gang, 0, 1),
        "lost": lost(registered("a")),
        "launch": LaunchFailed.model_validate(about),
        "rebooted": registered("a", boot_id="boot-2"),
    }[trouble]
    d.feed(event, stopped(gang, "a"))
    assert d.status("j").state is JobState.FAILED and "run_time_s" in d.status("j").reason
