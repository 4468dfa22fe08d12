"""Hazards that the design names, against the scheduler's machine: each test fails without its counter-measure."""

from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, lost, progress, registered, run_through, started, stopped, token
from trainhouse.events import (
    AttemptRef,
    CancelJob,
    ChangeJob,
    DrainNode,
    Event,
    GangAllocated,
    GangReleased,
    JobState,
    JobStatus,
    LaunchFailed,
    NodeDesiredState,
    NodeHeartbeat,
    NodeId,
    NodeRegistered,
    PoolCreated,
    PoolName,
)
from trainhouse.events.model.decisions import NodeGivenUp, PlacementResumed
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import PlacementFrozen
from trainhouse.scheduler.core.attempts import restart_budget
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.placement import feasibility
from trainhouse.scheduler.core.protocol.machine import OWN_PARTITION
from trainhouse.scheduler.core.queue.entries import Action
from trainhouse.scheduler.core.schedule import ScheduleMachine


def cancel(job_id: str) -> CancelJob:
    return CancelJob.model_validate({"job_id": job_id})


def running(*gangs: GangAllocated, **more: Any) -> dict[str, Any]:
    """Fields of a registration: what the agent still runs."""
    refs = [AttemptRef(job_id=g.job_id, attempt=g.attempt, epoch=g.epoch) for g in gangs]
    return {"running": refs} | more


def placed(nodes: int = 1, ranks: int = 2, **fields: Any) -> tuple[Driver, GangAllocated]:
    """A driver whose nodes a, b … run job j, with one step done."""
    d = Driver()
    for name in "abcdef"[:nodes]:
        d.feed(registered(name))
    d.feed(admitted("j", ranks=ranks, **fields))
    gang = d.last(GangAllocated)
    d.feed(*(started(gang, p.node_id) for p in gang.placements))
    d.feed(progress(gang, 1))
    assert d.status("j").state is JobState.RUNNING
    return d, gang


@pytest.mark.parametrize("back_ms", [3_600_000, 86_400_000])
def test_progress_counts_though_the_clock_of_its_rank_was_set_back(back_ms: int) -> None:
    """It was taken for old until the clock had made up for it: a job stood at its step for an hour."""
    d, gang = placed()
    d.mark(progress(gang, 5, at_ms=d.now_ms))
    d.mark(progress(gang, 6, at_ms=d.now_ms - back_ms))
    d.mark(progress(gang, 6, at_ms=d.now_ms - back_ms), progress(gang, 5, at_ms=d.now_ms - back_ms - 1))
    known = d.state.job("j").progress
    assert known is not None and known.step == 6


def test_reports_of_a_stale_epoch_are_ignored() -> None:
    d, old = placed()
    d.feed(exited(old, 0, 1), stopped(old, "a"))
    new = d.last(GangAllocated)
    assert new.epoch == old.epoch + 1
    assert d.feed(started(old, "a")) == []
    assert d.feed(progress(old, 99)) == []
    assert d.feed(exited(old, 1, 1)) == []
    assert d.feed(exited(old, 0, 0), exited(old, 1, 0), stopped(old, "a")) == []
    assert d.state.nodes["a"].holds[0].epoch == new.epoch


def test_a_node_is_not_given_to_two_gangs_after_a_short_outage() -> None:
    d, old = placed()
    node = registered("a")
    d.feed(lost(node))
    d.feed(admitted("k", ranks=2))
    assert d.status("j").state is JobState.PENDING and len(d.all(GangAllocated)) == 1, "a lost node is given to nobody"
    d.feed(registered("a", incarnation="inc-2", **running(old)))
    assert len(d.all(GangAllocated)) == 1, "its old ranks still hold the devices"
    assert d.last(NodeDesiredState).allocations == ()
    d.feed(stopped(old, "a"))
    assert len(d.all(GangAllocated)) == 2


def test_a_lost_node_costs_no_restart_of_the_job_and_frees_nothing() -> None:
    d, _ = placed(nodes=2, ranks=4, limits={"restarts": 0})
    d.feed(lost(registered("a")))
    assert d.last(GangReleased).node_ids == ("a", "b")
    d.feed(stopped(d.last(GangAllocated), "b"))
    status = d.status("j")
    assert (status.state, status.attempt) == (JobState.PENDING, 1) and "node a was lost" in status.reason
    d.feed(registered("c"))
    assert d.last(GangAllocated).epoch == 2 and {p.node_id for p in d.last(GangAllocated).placements} == {"b", "c"}


def test_an_idle_node_that_is_lost_is_given_to_nobody() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(lost(registered("a")))
    d.feed(admitted("j"))
    assert not d.all(GangAllocated) and d.status("j").state is JobState.PENDING
    d.feed(registered("a"))
    assert len(d.all(GangAllocated)) == 1


def test_a_failure_that_a_dying_node_caused_is_put_down_to_the_loss() -> None:
    d, gang = placed(nodes=2, ranks=4, limits={"restarts": 0})
    d.feed(exited(gang, 2, 1, reason="connection closed by peer"), stopped(gang, "b"))
    d.feed(lost(registered("a")))
    assert (d.status("j").state, d.status("j").attempt) == (JobState.PENDING, 1)


def test_a_verdict_on_an_earlier_registration_is_ignored() -> None:
    d, _ = placed()
    d.feed(registered("a", incarnation="inc-2", **running(d.last(GangAllocated))))
    assert d.feed(lost(registered("a"))) == []
    assert d.feed(lost(registered("nobody"))) == []


def test_a_reboot_ends_what_ran_there_at_once() -> None:
    d, _ = placed(limits={"restarts": 0})
    d.feed(registered("a", boot_id="boot-2"))
    again = d.last(GangAllocated)
    assert again.epoch == 2 and again.placements[0].boot_id == "boot-2"
    assert "rebooted" in d.all(JobStatus, job_id="j", state=JobState.PENDING)[-1].reason


def test_an_agent_that_restarts_keeps_its_attempts() -> None:
    d, gang = placed()
    decisions = d.feed(registered("a", incarnation="inc-2", **running(gang)))
    assert not any(isinstance(x, JobStatus) for x in decisions)
    assert d.last(NodeDesiredState).allocations == (gang,)


def test_an_order_that_an_agent_has_not_read_yet_is_given_again_and_not_taken_for_a_loss() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2))
    d.feed(registered("a", incarnation="inc-2"))
    assert d.last(NodeDesiredState).allocations == (d.last(GangAllocated),)
    d.tick(10_000)
    assert d.status("j").state is JobState.SCHEDULED


def test_a_rendezvous_that_moved_before_the_ranks_began_is_a_loss() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2))
    d.feed(registered("a", incarnation="inc-2", rendezvous_ports=[31000, 31001]))
    gang = d.last(GangAllocated)
    assert len(d.all(GangAllocated)) == 1, "the agent may yet read the order: it must say that nothing is left"
    d.feed(stopped(gang, "a"))
    assert (d.last(GangAllocated).epoch, d.last(GangAllocated).master_port) == (2, 31000)


def test_an_attempt_that_its_node_no_longer_runs_is_lost_unless_the_exits_are_told() -> None:
    d, gang = placed(limits={"restarts": 0})
    d.feed(registered("a", incarnation="inc-2"))
    assert d.state.nodes["a"].holds == ()
    d.tick(1_000)
    assert d.status("j").state is JobState.RUNNING
    d.tick(3_000)
    d.tick(1_000)
    assert d.last(GangAllocated).epoch == gang.epoch + 1

    d, gang = placed()
    d.feed(registered("a", incarnation="inc-2"))
    d.feed(exited(gang, 0), exited(gang, 1))
    assert d.status("j").state is JobState.SUCCEEDED


def test_reports_may_come_in_any_order() -> None:
    d = Driver()
    d.feed(registered("a"))
    d.feed(admitted("j", ranks=2))
    gang = d.last(GangAllocated)
    d.feed(stopped(gang, "a"), exited(gang, 1), progress(gang, 3), exited(gang, 0), started(gang, "a"))
    assert d.status("j").state is JobState.SUCCEEDED


def test_the_directorys_repeats_are_dropped_by_their_order_tokens() -> None:
    d = Driver()
    d.feed(registered("a"))
    submission = token(admitted("j", ranks=2), seq=7)
    d.feed(submission)
    run_through(d, d.last(GangAllocated))
    assert d.status("j").state is JobState.SUCCEEDED
    assert d.feed(submission) == [], "else the finished job would run again"
    assert d.feed(token(cancel("x"), seq=6, ordinal=9)) == []
    assert d.feed(token(admitted("k"), seq=7, ordinal=1)) != []
    assert d.feed(token(admitted("l"), seq=1, partition=9)) != []


def test_devices_of_a_stranger_are_left_alone_until_it_is_gone() -> None:
    _d, gang = placed()
    e = Driver()
    e.feed(registered("a", **running(gang)))
    e.feed(admitted("k", ranks=1))
    assert not e.all(GangAllocated)
    e.feed(stopped(gang, "a"))
    assert len(e.all(GangAllocated)) == 1


def test_a_node_that_says_it_runs_what_was_placed_elsewhere_is_told_to_end_it_and_can_be_lost() -> None:
    d, gang = placed()
    stranger = registered("z", **running(gang))
    d.feed(stranger)
    assert d.last(NodeDesiredState, node_id="z").allocations == ()
    d.feed(DrainNode(pool=PoolName("default"), node_id=NodeId("z")))
    d.feed(lost(stranger))
    assert d.last(NodeGivenUp).node_id == "z" and not d.all(GangReleased)


def test_a_cancellation_of_a_waiting_a_running_and_a_failing_job() -> None:
    d, gang = placed()
    d.feed(admitted("waits", ranks=2))
    d.feed(cancel("waits"))
    assert d.status("waits").state is JobState.CANCELLED
    d.feed(exited(gang, 0, 3))
    d.feed(cancel("j"))
    assert d.last(GangReleased).grace_s == 15.0
    assert d.status("j").state is JobState.RUNNING and "cancelled" in d.status("j").reason
    assert d.feed(cancel("j")) == [], "asked twice"
    d.feed(stopped(gang, "a"))
    assert d.status("j").state is JobState.CANCELLED
    assert d.feed(cancel("j"), cancel("never-seen")) == []


def test_a_launch_that_no_node_could_do_fails_the_job_and_another_is_tried_again() -> None:
    for retryable, state in ((False, JobState.FAILED), (True, JobState.SCHEDULED)):
        d = Driver()
        d.feed(registered("a"))
        d.feed(admitted("j", limits={"restarts": 0}))
        gang = d.last(GangAllocated)
        about = {"job_id": "j", "attempt": 0, "epoch": 1, "node_id": "a", "pool": "default"}
        d.feed(LaunchFailed.model_validate(about | {"reason": "no such file: train.py", "retryable": retryable}))
        d.feed(stopped(gang, "a"))
        assert d.status("j").state is state
        assert "no such file: train.py" in d.all(JobStatus)[2].reason


def test_losses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_budget, "MAX_LOSSES", 2)
    d, _gang = placed()
    for _ in range(3):
        d.feed(exited(d.last(GangAllocated), 0, None), stopped(d.last(GangAllocated), "a"))
        d.tick(60_000)
    assert d.status("j").state is JobState.FAILED and "Given up after 2 losses" in d.status("j").reason


def test_retries_wait_longer_and_longer_but_the_first_does_not() -> None:
    assert [restart_budget.backoff_ms(s) for s in range(9)] == [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    d, gang = placed(limits={"restarts": 9})
    d.feed(exited(gang, 0, 1), stopped(gang, "a"))
    second = d.last(GangAllocated)
    assert second.epoch == 2
    d.feed(exited(second, 0, 1), stopped(second, "a"))
    assert len(d.all(GangAllocated)) == 2
    d.feed(admitted("other", ranks=2, priority=90))
    assert d.last(GangAllocated).job_id == "other", "a job that waits for its retry blocks nobody"
    d.feed(cancel("other"), stopped(d.last(GangAllocated), "a"))
    d.tick(500)
    assert (d.last(GangAllocated).job_id, d.last(GangAllocated).epoch) == ("j", 3)


def test_a_release_that_nobody_answers_is_repeated() -> None:
    d, _gang = placed()
    d.feed(cancel("j"))
    d.tick(30_000)
    assert len(d.all(GangReleased)) == 1
    d.tick(10_000)
    assert len(d.all(GangReleased)) == 2
    assert d.status("j").state is JobState.RUNNING


def test_an_event_that_control_does_not_carry_is_unexpected() -> None:
    beat = {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p", "sequence": 0, "at_ms": 0, "interval_s": 1}
    with pytest.raises(UnexpectedInput):
        Driver().feed(NodeHeartbeat.model_validate(beat))


def broken(book: Book, now_ms: int) -> list[Action]:
    """A cycle with a bug that one job brings out."""
    if book.lanes.get("poison") is not None:
        raise ZeroDivisionError("cpus")
    return run_cycle(book, now_ms)


def test_a_placement_that_raises_freezes_placement_alone_and_says_so() -> None:
    d, gang = placed()
    d.machine = ScheduleMachine(broken)
    d.feed(admitted("poison", ranks=1, priority=1))
    d.feed(exited(gang, 0), exited(gang, 1), stopped(gang, "a"))
    assert "ZeroDivisionError" in d.last(PlacementFrozen).reason
    alert = next(e for e in d.effects if e.topic == topics.ALERTS)
    assert alert.event == d.last(PlacementFrozen)
    assert d.status("j").state is JobState.SUCCEEDED, "reports are handled all the same"
    d.feed(admitted("healthy", ranks=1))
    d.tick()
    assert not d.all(GangAllocated, job_id="healthy")
    d.feed(cancel("poison"))
    assert d.all(GangAllocated, job_id="healthy") and d.all(PlacementResumed)


def test_other_code_thaws_a_frozen_placement() -> None:
    d = Driver(ScheduleMachine(broken))
    d.feed(registered("a"))
    d.feed(admitted("poison", ranks=1))
    frozen = d.state.frozen
    assert frozen is not None
    for _ in range(59):
        assert d.tick() == []
    d.tick()
    assert d.state.frozen is not None and d.state.frozen.at_ms > frozen.at_ms, "tried again, in vain"
    d.machine = ScheduleMachine()
    d.machine.decide_version += 1
    d.tick()
    assert d.state.frozen is None and d.all(GangAllocated, job_id="poison")


def test_orders_go_to_the_partition_of_the_journal_and_statuses_by_key() -> None:
    d, _gang = placed()
    d.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}))
    by_topic: dict[str, set[int | None]] = {}
    for e in d.effects:
        by_topic.setdefault(e.topic, set()).add(e.partition)
    assert by_topic == {topics.ALLOCATIONS: {OWN_PARTITION}, topics.STATUS: {None}, topics.POOLS: {None}}
    ids = [e.event_id for e in d.effects]
    assert len(set(ids)) == len(ids)


def test_a_change_of_priority_moves_a_waiting_job_ahead() -> None:
    d, gang = placed()
    d.feed(admitted("first", ranks=2), admitted("second", ranks=2))
    d.feed(ChangeJob.model_validate({"job_id": "second", "priority": 1}))
    run_through(d, gang)
    assert d.last(GangAllocated).job_id == "second"


@pytest.mark.parametrize("needs", [{"device_type": "h100"}, {"ranks": 9}, {"cpus_per_device": 64}, {"memory_gib_per_device": 64}])
def test_a_gang_that_the_pool_could_never_hold_is_refused_with_the_numbers(needs: dict[str, Any]) -> None:
    d = Driver()
    d.feed(registered("a", cpus=4, memory_bytes=2**33), registered("b", cpus=4, memory_bytes=2**33))
    d.now_ms += feasibility.POOL_SETTLES_MS
    d.feed(admitted("j", **needs))
    status = d.status("j")
    assert status.state is JobState.REJECTED and "4 of type cpu" in status.reason
    assert d.state.jobs == {}


def test_nobody_is_refused_while_the_pool_is_being_built() -> None:
    d = Driver()
    d.feed(admitted("j", ranks=4))
    d.tick(10**7)
    assert d.status("j").state is JobState.PENDING
    d.feed(registered("a"))
    d.tick(feasibility.POOL_SETTLES_MS - 1)
    assert d.status("j").state is JobState.PENDING
    d.feed(registered("b"))
    assert d.status("j").state is JobState.SCHEDULED


def test_a_waiting_gang_is_refused_once_the_pool_has_settled_without_room_for_it() -> None:
    d = Driver()
    d.feed(admitted("j", ranks=4), admitted("k", ranks=1))
    d.feed(registered("a"))
    d.tick(feasibility.POOL_SETTLES_MS)
    assert d.status("j").state is JobState.REJECTED and d.status("k").state is JobState.SCHEDULED


def test_devices_of_nodes_that_are_lost_for_now_count_as_the_pools() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"))
    d.feed(lost(registered("b")))
    d.now_ms += feasibility.POOL_SETTLES_MS
    d.feed(admitted("j", ranks=4))
    assert d.status("j").state is JobState.PENDING


def kinds(events: list[Event]) -> list[str]:
    return [type(e).__name__ for e in events]


def test_registration_is_answered_for_this_incarnation() -> None:
    d = Driver()
    event: NodeRegistered = registered("a", incarnation="inc-9")
    assert kinds(d.feed(event)) == ["NodeJoined", "NodeDesiredState", "CycleRan"]
    assert d.last(NodeDesiredState).incarnation == "inc-9"
