"""What a cycle's actions become: gangs that make way, claims that are kept for others, held starts, sizes, shares and roles."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, lost, policy_changed, progress, registered, run_through, started, stopped
from trainhouse.events import CancelJob, CheckpointRequested, Device, GangAllocated, GangReleased, JobState, JobStatus
from trainhouse.events.model.phases import Running
from trainhouse.events.model.pool import ClaimDropped, DevicesClaimed
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.cluster.shape import Part
from trainhouse.scheduler.core.cycle.apply_actions import apply
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.queue.entries import Action, Claim, Evict, Eviction, Hold
from trainhouse.scheduler.core.schedule import ScheduleMachine


def evicting(why: Eviction) -> Callable[[Book, int], list[Action]]:
    """A cycle that lets job `vip` have the devices of job `j` as soon as both are there."""

    def cycle(book: Book, now_ms: int) -> list[Action]:
        victim, vip = book.running.get("j"), book.lanes.get("vip")
        actions: list[Action] = []
        if victim is not None and victim.leaving_ms is None and vip is not None and not book.claims:
            actions = [Hold(Claim("vip", victim.placement, ("j",), now_ms)), Evict("j", why, now_ms + 60_000, for_job="vip")]
            for action in actions:
                apply(book, action, now_ms)
        return actions + run_cycle(book, now_ms)

    return cycle


def preempted(why: Eviction = Eviction.PREEMPTED, talks: bool = True) -> tuple[Driver, GangAllocated]:
    """Job j of two ranks ran on the only node and is asked to make way for job vip."""
    d = Driver(ScheduleMachine(evicting(why)))
    d.feed(registered("a"), admitted("j", ranks=2, limits={"restarts": 0}))
    gang = d.last(GangAllocated)
    d.feed(started(gang, "a"), *([progress(gang, 1)] if talks else []))
    d.feed(admitted("vip", ranks=2))
    return d, gang


@pytest.mark.parametrize("why", list(Eviction))
def test_a_gang_that_makes_way_saves_leaves_and_waits_again_at_no_cost(why: Eviction) -> None:
    d, gang = preempted(why)
    assert d.last(CheckpointRequested).then_stop and d.status("j").state is JobState.CHECKPOINTING
    assert [str(v) for v in d.last(DevicesClaimed, job_id="vip").victims] == ["j"]
    d.feed(exited(gang, 0, 75), exited(gang, 1, 75))
    assert d.status("j").state is JobState.PREEMPTED
    d.feed(stopped(gang, "a"))
    assert d.last(GangAllocated).job_id == "vip"
    states = [s.state for s in d.all(JobStatus, job_id="j")]
    assert states[-2:] == [JobState.PREEMPTED, JobState.PENDING] and d.status("j").attempt == 1
    assert d.state.jobs["j"].tally.failures == d.state.jobs["j"].tally.losses == 0
    assert d.state.claims == {} and d.state.book.claims == {}
    run_through(d, d.last(GangAllocated))
    assert (d.last(GangAllocated).job_id, d.last(GangAllocated).epoch) == ("j", 2)


def test_devices_of_a_claim_are_given_to_nobody_else_while_others_leave() -> None:
    d, gang = preempted()
    d.feed(admitted("sneak", ranks=1, priority=0))
    d.feed(exited(gang, 0, 75), exited(gang, 1, 75), stopped(gang, "a"))
    assert d.last(GangAllocated).job_id == "vip"


def test_a_gang_that_ends_well_while_it_makes_way_has_succeeded() -> None:
    d, gang = preempted()
    d.feed(exited(gang, 0), exited(gang, 1), stopped(gang, "a"))
    assert d.status("j").state is JobState.SUCCEEDED and d.last(GangAllocated).job_id == "vip"


def test_a_save_that_does_not_come_ends_with_its_deadline() -> None:
    d, _ = preempted()
    d.tick(59_999)
    assert not d.all(GangReleased)
    d.tick(1)
    assert d.last(GangReleased).grace_s == 15.0


def test_a_gang_that_never_spoke_is_released_with_its_grace() -> None:
    d, _ = preempted(talks=False)
    assert not d.all(CheckpointRequested) and d.last(GangReleased).grace_s == 15.0


def test_a_cancellation_while_it_makes_way_counts() -> None:
    d, gang = preempted()
    d.feed(CancelJob.model_validate({"job_id": "j"}))
    d.feed(exited(gang, 0, None, 15), exited(gang, 1, None, 15), stopped(gang, "a"))
    assert d.status("j").state is JobState.CANCELLED


@pytest.mark.parametrize("end", ["cancelled", "lost"])
def test_a_claim_whose_job_or_node_is_gone_is_over(end: str) -> None:
    d, gang = preempted()
    if end == "cancelled":
        d.feed(CancelJob.model_validate({"job_id": "vip"}))
        d.feed(exited(gang, 0, 75), exited(gang, 1, 75), stopped(gang, "a"))
        assert (d.last(GangAllocated).job_id, d.last(GangAllocated).epoch) == ("j", 2)
    else:
        d.feed(lost(registered("a")))
        assert d.all(ClaimDropped, job_id="vip")
        d.feed(registered("b"))
        assert [p.node_id for p in d.last(GangAllocated).placements] == ["b"]
    assert d.state.claims == {} and d.state.book.cluster.claimed == {}


def test_moves_are_counted_for_an_hour_and_kept_in_snapshots() -> None:
    d, _ = preempted(Eviction.MOVED)
    assert d.state.book.moves_ms == (d.now_ms,)
    assert d.machine.load(d.machine.dump(d.state)).book.moves_ms == (d.now_ms,)


def test_an_elastic_gang_starts_with_what_there_is() -> None:
    d = Driver()
    d.feed(registered("a", slots=3), policy_changed(elastic={"enabled": True}))
    d.feed(admitted("j", gang={"ranks": 8, "min_ranks": 2}))
    gang = d.last(GangAllocated)
    assert gang.world_size == 3 and d.status("j").state is JobState.SCHEDULED and d.status("j").world_size == 3
    run_through(d, gang)
    assert d.status("j").state is JobState.SUCCEEDED


def test_shares_of_one_device_add_up_and_gangs_take_whole_ones() -> None:
    d = Driver()
    d.feed(registered("a", slots=2, device_type="h100"))
    d.feed(*(admitted(f"s{i}", resources={"device_share": 400}) for i in range(3)), admitted("g", ranks=2))
    by_device: dict[str, int] = {}
    for gang in d.all(GangAllocated):
        (part,) = gang.placements
        by_device[part.devices[0]] = by_device.get(part.devices[0], 0) + 400
    assert by_device == {"a-0": 800, "a-1": 400} and d.status("g").state is JobState.PENDING
    for gang in d.all(GangAllocated):
        run_through(d, gang)
    assert d.last(GangAllocated).job_id == "g"


def test_ranks_of_roles_get_the_devices_that_their_roles_need() -> None:
    kinds = ("cpu", "h100", "cpu", "h100")
    devices = [Device.model_validate({"device_id": f"a-{i}", "index": i, "type": t}) for i, t in enumerate(kinds)]
    d = Driver()
    d.feed(registered("a", slots=4, devices=devices), registered("b", slots=4))
    learner = {"name": "learner", "ranks": 2, "resources": {"device_type": "h100"}}
    actor = {"name": "actor", "ranks": 4, "resources": {"device_type": "cpu"}}
    d.feed(admitted("j", gang={"ranks": 6, "roles": [learner, actor]}))
    gang = d.last(GangAllocated)
    type_of = {x.device_id: x.type for n in d.state.nodes.values() for x in n.devices}
    types = [type_of[device] for p in gang.placements for device in p.devices]
    assert types == ["h100", "h100", "cpu", "cpu", "cpu", "cpu"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"gang": {"ranks": 4, "require": "rack"}}, "no node of it tells a level rack"),
        ({"gang": {"ranks": 4, "require": "node"}}, "in one node"),
        ({"gang": {"ranks": 2}, "placement": {"node_labels": {"zone": "x"}}}, "on nodes with zone=x"),
        ({"resources": {"device_memory_gib": 80}}, "80 GiB of device memory"),
        ({"gang": {"ranks": 8, "min_ranks": 6}}, "6 to 8 devices"),
    ],
)
def test_what_can_never_be_is_refused_at_submission_with_the_numbers(fields: dict[str, Any], told: str) -> None:
    devices = [Device.model_validate({"device_id": f"a-{i}", "index": i, "type": "h100", "memory_bytes": 40 * 2**30}) for i in range(2)]
    d = Driver()
    d.feed(registered("a", devices=devices), registered("b"))
    d.tick(20_000)
    d.feed(admitted("j", **fields))
    assert d.status("j").state is JobState.REJECTED
    assert told in d.status("j").reason and "2 of type h100" in d.status("j").reason


def test_a_node_that_tells_its_devices_in_another_order_keeps_its_gangs_where_they_are() -> None:
    d = Driver()
    node = registered("a", slots=4)
    d.feed(node, admitted("j", ranks=2))
    gang = d.last(GangAllocated)
    d.feed(started(gang, "a"), progress(gang, 1))
    turned = node.model_copy(update={"devices": node.devices[::-1], "incarnation": "inc-2"})
    runs = {"job_id": "j", "attempt": 0, "epoch": 1}
    d.feed(turned.model_validate(turned.model_dump() | {"running": [runs]}))
    assert d.state.book.running["j"].placement == (Part(0, 0b1100),)
    again = d.machine.load(d.machine.dump(d.state))
    assert again.book.running == d.state.book.running and again.book.cluster.free_bits == d.state.book.cluster.free_bits
    d.feed(admitted("k", ranks=2))
    assert not set(d.last(GangAllocated, job_id="k").placements[0].devices) & set(gang.placements[0].devices)


def test_a_part_that_has_ended_holds_nothing_that_others_could_be_promised_twice() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"), admitted("j", ranks=4))
    gang = d.last(GangAllocated)
    d.feed(*(exited(gang, r) for r in gang.placements[1].ranks), stopped(gang, "b"))
    assert [p.node for p in d.state.book.running["j"].placement] == [0]
    d.feed(admitted("k", ranks=2))
    assert [p.node_id for p in d.last(GangAllocated).placements] == ["b"]
    assert d.machine.load(d.machine.dump(d.state)).book.running == d.state.book.running
    d.feed(*(exited(gang, r) for r in gang.placements[0].ranks), stopped(gang, "a"))
    assert d.status("j").state is JobState.SUCCEEDED


def test_a_retry_that_may_start_but_finds_no_room_is_not_looked_at_at_every_tick() -> None:
    d = Driver()
    d.feed(registered("a"), admitted("j", ranks=2, limits={"restarts": 9}))
    for _ in range(2):
        gang = d.last(GangAllocated)
        d.feed(exited(gang, 0, 1), stopped(gang, "a"))
    d.feed(admitted("other", ranks=2))
    d.tick(500)
    assert not isinstance(d.state.jobs["j"].phase, Running) and d.status("j").state is JobState.PENDING
    assert d.tick(20) == [] and d.tick(20) == []
    loaded = d.machine.load(d.machine.dump(d.state))
    assert d.machine.decide(loaded, d.now_ms + 20, [d._input(ClockTicked())]) == []
