"""Where restarts go: back to the same devices, near them, away from what is blamed; smaller, where a node is gone; and who may not pass."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.core_world import (
    Driver,
    admitted,
    exited,
    going,
    gone,
    hung,
    lost,
    nodes_of,
    policy_changed,
    progress,
    registered,
    running,
    saved,
    started,
    stopped,
)
from trainhouse.events import CancelJob, CheckpointRequested, CordonNode, GangAllocated, JobState, LaunchFailed
from trainhouse.events.model.pool import ClaimDropped, DevicesClaimed
from trainhouse.scheduler.core.cluster.shape import Part, Shape, ranks_of
from trainhouse.scheduler.core.cycle.affinity import place_near

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."


def fleet(*names: str, slots: int = 2, **policy: Any) -> Driver:
    d = Driver()
    d.feed(*(registered(name, slots) for name in names), policy_changed(**policy))
    return d


def devices(gang: GangAllocated) -> set[str]:
    return {d for p in gang.placements for d in p.devices}


def test_a_gang_that_hung_starts_again_on_its_very_devices_and_nobody_passes_it() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=4)
    d.feed(admitted("older", ranks=2, priority=50), admitted("urgent", ranks=2, priority=0))
    d.tick(3_600_000)
    d.feed(hung(gang, ranks=[0, 1, 2, 3]))
    d.feed(stopped(gang, "a"))
    assert len(d.all(GangAllocated)) == 1, "what its first node lets go is kept for it"
    d.feed(stopped(gang, "b"))
    again = d.last(GangAllocated)
    assert (again.job_id, again.epoch) == ("j", 2) and devices(again) == devices(gang)
    assert d.state.claims == {}


def test_a_failure_of_its_own_waits_in_the_order_of_the_policy() -> None:
    d = fleet("a")
    gang = running(d, "j", ranks=2)
    d.feed(admitted("urgent", ranks=2, priority=0))
    d.feed(exited(gang, 0, 3), *gone(gang))
    assert d.last(GangAllocated).job_id == "urgent" and d.all(ClaimDropped, job_id="j")


def test_a_restart_goes_to_its_own_nodes_though_others_come_first_in_their_order() -> None:
    d = fleet("a", "b", "c")
    first, gang = running(d, "first", ranks=2), running(d, "j", ranks=2)
    assert nodes_of(gang) == ["b"]
    d.feed(exited(first, 0), exited(first, 1), stopped(first, "a"))
    d.feed(exited(gang, 0, 3), *gone(gang))
    assert nodes_of(d.last(GangAllocated)) == ["b"]
    d2 = fleet("a", "b", failures={"recovery": {"prefer_same_nodes": False}})
    first, gang = running(d2, "first", ranks=2), running(d2, "j", ranks=2)
    d2.feed(exited(first, 0), exited(first, 1), stopped(first, "a"))
    d2.feed(exited(gang, 0, 3), *gone(gang))
    assert nodes_of(d2.last(GangAllocated)) == ["a"] and not d2.all(DevicesClaimed)


def test_a_node_that_is_blamed_is_kept_off_if_there_is_another_way() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
    again = going(d, "j")
    assert nodes_of(again) == ["b"] and d.state.jobs["j"].avoid_nodes == ("a",)
    d.feed(CordonNode.model_validate({"pool": "default", "node_id": "a"}), saved(again, 1))
    d.feed(exited(again, 0, 1, reason=XID), *gone(again))
    assert nodes_of(d.last(GangAllocated)) == ["b"], "there is no other way"


def test_a_launch_that_failed_is_tried_elsewhere() -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=2)
    about = {"job_id": "j", "attempt": 0, "epoch": 1, "node_id": "a", "pool": "default", "reason": "no space", "retryable": True}
    d.feed(LaunchFailed.model_validate(about), *gone(gang))
    assert nodes_of(d.last(GangAllocated)) == ["b"]


def test_the_smallest_replacement_for_a_lost_node_keeps_the_others() -> None:
    d = fleet("a", "b", "c", "d")
    gang = running(d, "j", ranks=4)
    assert nodes_of(gang) == ["a", "b"]
    d.feed(lost(registered("a")), stopped(gang, "b"))
    assert set(nodes_of(d.last(GangAllocated))) == {"b", "c"}


def test_nobody_takes_the_devices_that_are_left_of_a_gang_while_its_other_nodes_end_it() -> None:
    d = fleet("a", "b", "c")
    gang = running(d, "j", ranks=6)
    d.feed(admitted("small", ranks=2))
    d.feed(lost(registered("a")), stopped(gang, "b"))
    assert len(d.all(GangAllocated)) == 1, "what b let go is kept until j is told apart"
    d.feed(registered("d"))
    assert nodes_of(d.last(GangAllocated)) == ["d"] and d.last(GangAllocated).job_id == "small"
    d.feed(registered("e"))
    d.feed(stopped(gang, "c"))
    assert set(nodes_of(d.last(GangAllocated))) == {"b", "c", "e"} and d.last(GangAllocated).job_id == "j"
    assert d.state.claims == {}


def test_a_gang_is_not_torn_apart_to_be_near_its_old_place() -> None:
    d = fleet("a", "b", slots=4)
    gang = running(d, "j", ranks=4)
    d.feed(admitted("small", ranks=1))
    assert nodes_of(d.last(GangAllocated)) == ["b"]
    d.feed(registered("c", 4))
    d.feed(exited(gang, 0, 3))
    d.feed(CordonNode.model_validate({"pool": "default", "node_id": "a"}), stopped(gang, "a"))
    assert nodes_of(d.last(GangAllocated)) == ["c"]


def test_placing_near_is_a_placement_of_the_whole_gang_and_splits_no_gang_that_asks_for_more() -> None:
    d = fleet("a", "b", "c")
    running(d, "k", ranks=1)
    d.feed(CancelJob.model_validate({"job_id": "k"}))
    d.feed(admitted("w", ranks=9))
    job, cluster = d.state.book.lanes.get("w"), d.state.book.cluster
    assert job is not None
    packing = d.state.book.policy("default").packing
    plain = Shape("default", job.shape.blocks)
    near = place_near(cluster, replace(job, prefer=0b001, shun=0), plain, packing, 3, 0)
    assert near is not None and near[0] == Part(0, 0b10) and ranks_of(near) == 3
    one = Shape("default", job.shape.blocks, require="node")
    assert place_near(cluster, replace(job, prefer=0b001, shun=0b010), one, packing, 2, 0) == (Part(2, 0b11),)
    assert place_near(cluster, replace(job, prefer=0b001, shun=0b110), one, packing, 2, 0) is None


@pytest.mark.parametrize("end", ["cancelled", "node lost", "node closed"])
def test_what_a_failed_gang_holds_on_to_is_free_again_when_it_cannot_return(end: str) -> None:
    d = fleet("a", "b")
    gang = running(d, "j", ranks=4)
    d.feed(hung(gang, ranks=[0, 1, 2, 3]))
    assert d.state.claims and not d.last(DevicesClaimed).victims
    match end:
        case "cancelled":
            d.feed(CancelJob.model_validate({"job_id": "j"}))
        case "node lost":
            d.feed(lost(registered("a")))
        case "node closed":
            d.feed(CordonNode.model_validate({"pool": "default", "node_id": "a"}))
    d.feed(*gone(gang))
    assert d.state.claims == {} and d.state.book.cluster.claimed == {}
    d.feed(admitted("k", ranks=2))
    assert nodes_of(d.last(GangAllocated)) == (["a"] if end == "cancelled" else ["b"])


def test_a_gang_that_has_to_pause_keeps_nothing() -> None:
    d = fleet("a")
    running(d, "j", ranks=2)
    for _ in range(2):
        gang = d.last(GangAllocated)
        d.feed(exited(gang, 0, None), *gone(gang))
    assert d.status("j").state is JobState.PENDING and d.state.claims == {}


def test_a_gang_beyond_a_quota_that_fell_does_not_keep_its_devices_idle() -> None:
    d = fleet("a", "b")
    gang, other = running(d, "j", ranks=2, team="lm"), running(d, "other", ranks=1)
    d.feed(policy_changed(teams=[{"name": "lm", "limit": {"any": 1}}]))
    d.feed(CancelJob.model_validate({"job_id": "other"}))
    d.feed(hung(gang, ranks=[0, 1]), *gone(gang))
    assert d.status("j").state is JobState.PENDING and d.state.claims == {}
    d.feed(*gone(other), admitted("k", ranks=2))
    assert nodes_of(d.last(GangAllocated, job_id="k")) == ["a"]


def test_an_elastic_gang_restarts_smaller_when_a_node_is_lost_and_grows_back() -> None:
    d = fleet("a", "b", elastic={"enabled": True, "grow_after_s": 60})
    gang = running(d, "j", gang={"ranks": 4, "min_ranks": 2}, limits={"restarts": 0})
    assert gang.world_size == 4
    d.feed(saved(gang, 1), lost(registered("a")), stopped(gang, "b"))
    small = going(d, "j")
    assert (small.world_size, nodes_of(small)) == (2, ["b"])
    d.tick(61_000)
    assert not d.all(CheckpointRequested), "there is nothing to grow into"
    d.feed(registered("a", incarnation="inc-2"))
    assert "grows from 2 to 4 ranks" in d.last(CheckpointRequested).reason
    d.feed(progress(small, 2, at_ms=d.now_ms), saved(small, 3), exited(small, 0, 75), exited(small, 1, 75), *gone(small))
    again = d.last(GangAllocated)
    assert again.world_size == 4 and set(nodes_of(again)) == {"a", "b"}
    d.feed(*(started(again, n) for n in ("a", "b")))
    tally = d.state.jobs["j"].tally
    assert (tally.failures, tally.losses) == (0, 1)


def test_a_job_remembers_all_nodes_that_its_attempts_were_given() -> None:
    d = fleet("a", "b")
    gang = running(d, "j")
    (first,) = nodes_of(gang)
    d.feed(lost(registered(first)), wait_ms=1)
    again = going(d, "j")
    assert nodes_of(again) != [first] and d.state.job("j").ran_on == ("a", "b")


def test_a_gang_whose_ranks_are_done_one_by_one_is_not_grown_again() -> None:
    d = fleet("a", "b", "c", elastic={"enabled": True, "grow_after_s": 1})
    gang = running(d, "j", gang={"ranks": 6, "min_ranks": 2})
    assert len(nodes_of(gang)) == 3
    for rank in range(4):
        d.feed(exited(gang, rank))
        d.tick(5_000)
    first, second, _ = gang.placements
    d.feed(stopped(gang, first.node_id), stopped(gang, second.node_id))
    d.tick(5_000)
    d.feed(exited(gang, 4), exited(gang, 5))
    d.tick(5_000)
    d.feed(*gone(gang))
    assert d.status("j").state is JobState.SUCCEEDED and d.all(GangAllocated, job_id="j") == [gang]
    assert not d.all(CheckpointRequested) and not d.all(DevicesClaimed), "it was to begin again, larger"
