"""What other schedulers got wrong, one case each, on the machine with its journal.

Two queues that preempt each other for ever have theirs on the cycle: `test_two_queues_do_not_preempt_each_other_for_ever` in
tests/unit/scheduler/core/cycle/test_preempt_livelock.py runs 1,000 cycles under four orders and three guarantees. More of the family:
test_preempt_choices.py there (plans that fail change nothing) and scheduler/core/test_core_hazards.py (outages in every order).
"""

from __future__ import annotations

from typing import Any

from tests.support.core_world import Driver, admitted, exited, lost, policy_changed, progress, registered, started, stopped
from trainhouse.events import CheckpointRequested, Event, GangAllocated, GangReleased, JobState, NodeDesiredState
from trainhouse.events.model.pool import DevicesClaimed
from trainhouse.scheduler.core.explain.explainer import explain_job

PREEMPTION = {"enabled": True, "min_run_s": 0, "margin": 0, "checkpoint_deadline_s": 10}


def evictions(driver: Driver) -> list[Event]:
    return [*driver.all(CheckpointRequested), *driver.all(GangReleased)]


def run(driver: Driver, job_id: str, **fields: Any) -> GangAllocated:
    """A job that has its gang and trains."""
    driver.feed(admitted(job_id, **fields))
    gang = driver.last(GangAllocated, job_id=job_id)
    driver.feed(*(started(gang, p.node_id) for p in gang.placements))
    driver.feed(progress(gang, 1))
    return gang


def test_evictions_are_not_committed_though_the_preemptor_then_fails() -> None:
    """Others evict by numbers of devices, and then the gang does not fit (here: a user of a shared device stays): evicted for nothing."""
    d = Driver()
    d.feed(registered("a"), policy_changed(preemption=PREEMPTION))
    share = {"resources": {"device_share": 500}, "priority": 90}
    for name, more in (("one", share), ("keeps", share | {"preemptible": False}), ("two", {"priority": 90, "ranks": 1})):
        run(d, name, **more)
    assert len({p.devices for g in d.all(GangAllocated) for p in g.placements}) == 2, "two of them share a device"
    d.feed(admitted("needs-both", ranks=2, priority=5))
    d.tick(60_000)
    assert not evictions(d) and not d.all(DevicesClaimed)
    d.feed(admitted("needs-one", ranks=1, priority=1))
    claim = d.last(DevicesClaimed)
    assert (claim.job_id, claim.victims) == ("needs-one", ("two",))
    gang = d.all(GangAllocated, job_id="two")[-1]
    d.feed(exited(gang, 0, 75), stopped(gang, "a"))
    assert d.last(GangAllocated).job_id == "needs-one"


def test_a_gang_is_not_stuck_below_its_minimum_after_a_node_comes_back() -> None:
    """Others let a gang go on with the ranks that are left when a node dies, below its minimum, and never give it the node again."""
    d = Driver()
    d.feed(*(registered(n) for n in "abc"), policy_changed(elastic={"enabled": True, "grow_after_s": 0}))
    first = run(d, "j", gang={"ranks": 6, "min_ranks": 5})
    assert first.world_size == 6
    d.feed(lost(registered("c")))
    d.feed(stopped(first, "a"), stopped(first, "b"))
    d.tick(60_000)
    assert d.status("j").state is JobState.PENDING and len(d.all(GangAllocated)) == 1, "four ranks are below its minimum: none runs"
    d.feed(registered("c", boot_id="boot-2"))
    assert d.last(GangAllocated).world_size == 6


def test_finished_gangs_hold_nothing() -> None:
    """Others leak devices of jobs that ended while a node was away: here one that came back before it had read the order."""
    d = Driver()
    d.feed(registered("a"), registered("b"))
    d.feed(admitted("j", ranks=4))
    gang = d.last(GangAllocated)
    d.feed(started(gang, "a"))
    d.feed(lost(registered("b")))
    d.feed(registered("b", incarnation="inc-2"))
    d.feed(stopped(gang, "a"))
    d.tick(1_000)
    again = d.last(GangAllocated)
    assert again.epoch == 2 and {p.node_id for p in again.placements} == {"a", "b"}
    d.feed(*(started(again, n) for n in "ab"), *(exited(again, r) for r in range(4)), stopped(again, "a"), stopped(again, "b"))
    assert d.status("j").state is JobState.SUCCEEDED
    assert not d.state.jobs and all(not n.holds for n in d.state.nodes.values())
    assert d.state.book.cluster.free("default") == 4 and not d.state.claims and not d.state.reservations


def test_one_impossible_task_does_not_block_its_queue() -> None:
    """Others wait for ever, first in the queue, for a gang that can never be: too large, or past the limit of the only large type."""
    d = Driver()
    teams = [{"name": "lm", "limit": {"h100": 4}}]
    strict = {"order": "submit", "blocking": "strict", "teams": teams}
    d.feed(registered("a", 8, device_type="h100"), registered("b", 2, device_type="l4"), policy_changed(**strict))
    d.tick(20_000)
    d.feed(admitted("huge", ranks=99), admitted("limited", ranks=6, team="lm"), admitted("fits", ranks=4, team="lm"))
    assert "it needs 99 devices" in d.status("huge").reason
    assert "limited" in d.status("limited").reason or "at most 4 h100" in d.status("limited").reason
    assert [d.status(j).state for j in ("huge", "limited")] == [JobState.REJECTED] * 2
    assert d.last(GangAllocated).job_id == "fits"
    d.feed(admitted("other-type", ranks=2, team="lm"))
    assert d.last(GangAllocated).placements[0].node_id == "b", "its quota stops h100, and l4 is free"


def test_a_gang_that_a_later_policy_stops_is_explained_and_holds_nothing() -> None:
    """Others promise a start to a gang that its quota then refuses, and say that it starts next, for ever."""
    d = Driver()
    d.feed(registered("a", 8, device_type="h100"), policy_changed())
    d.tick(20_000)
    run(d, "runs", ranks=8)
    d.feed(admitted("waits", ranks=6, team="lm"))
    d.feed(policy_changed(teams=[{"name": "lm", "limit": {"h100": 4}}]))
    gang = d.last(GangAllocated, job_id="runs")
    d.feed(*(exited(gang, r) for r in range(8)), stopped(gang, "a"))
    told = explain_job(d.state, "waits", d.now_ms)
    assert told is not None and told.obstacle == "QUOTA" and "h100" in told.text
    d.feed(admitted("behind", ranks=8))
    assert d.last(GangAllocated).job_id == "behind" and not d.state.reservations


def test_two_gangs_are_not_given_one_node_after_a_short_outage() -> None:
    """Others take a silent node's devices for free, give them away, and find the old ranks still there when the network is back."""
    d = Driver()
    d.feed(registered("a"))
    old = run(d, "j", ranks=2)
    d.feed(lost(registered("a")), admitted("k", ranks=2))
    alive = [{"job_id": "j", "attempt": old.attempt, "epoch": old.epoch}]
    d.feed(registered("a", incarnation="inc-2", running=alive))
    d.tick(60_000)
    assert len(d.all(GangAllocated)) == 1 and d.last(NodeDesiredState).allocations == ()
    d.feed(stopped(old, "a"))
    assert len(d.all(GangAllocated)) == 2
