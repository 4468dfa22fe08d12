"""Who gets which devices: order, whole gangs, types, cpus and memory."""

from typing import Any

from tests.support.core_world import Driver, admitted, policy_changed, registered, run_through
from trainhouse.events import GangAllocated, JobState
from trainhouse.events.model.pool import StartReserved


def order(d: Driver) -> list[str]:
    return [str(g.job_id) for g in d.all(GangAllocated)]


def test_priority_comes_first_and_then_the_order_of_submission() -> None:
    d = Driver()
    d.feed(admitted("late", priority=50), admitted("later", priority=50), admitted("low", priority=100), admitted("high", priority=0))
    d.feed(registered("a", slots=4))
    assert order(d) == ["high", "late", "later", "low"]


def test_under_strict_a_gang_is_whole_or_waits_and_nobody_slips_past_it() -> None:
    d = Driver()
    d.feed(registered("a", slots=3), policy_changed(blocking="strict"))
    d.feed(admitted("one", ranks=2), admitted("big", ranks=2), admitted("small", ranks=1))
    assert order(d) == ["one"]
    assert "waiting" not in d.status("one").reason
    run_through(d, d.last(GangAllocated))
    assert order(d) == ["one", "big", "small"]


def test_backfill_goes_past_a_gang_that_waits_where_it_does_not_delay_it() -> None:
    d = Driver()
    d.feed(registered("a", slots=2, device_type="h100"), registered("b", slots=1, device_type="cpu"))
    d.feed(admitted("one", device_type="h100", limits={"run_time_s": 60}))
    long, short = {"run_time_s": 1000}, {"run_time_s": 30}
    d.feed(admitted("big", ranks=2, device_type="h100", limits=long), admitted("late", device_type="h100", limits=long))
    d.feed(admitted("other", device_type="cpu", limits=long), admitted("soon", device_type="h100", limits=short))
    assert order(d) == ["one", "other", "soon"]
    held = d.last(StartReserved, job_id="big")
    assert held.node_ids == ("a",) and held.start_ms == d.now_ms + 60_000


def test_who_takes_any_type_is_held_back_by_a_blocked_one_only_on_its_type() -> None:
    d = Driver()
    d.feed(registered("a", slots=1, device_type="h100"), registered("b", slots=1, device_type="cpu"))
    d.feed(admitted("big", ranks=2, device_type="h100"), admitted("any"))
    assert [p.node_id for p in d.last(GangAllocated).placements] == ["b"]


def test_under_strict_a_gang_that_waits_blocks_everybody_behind_it() -> None:
    d = Driver()
    d.feed(policy_changed(blocking="strict"))
    d.feed(registered("a", slots=1, device_type="h100"), registered("b", slots=1, device_type="cpu"))
    d.feed(admitted("any", ranks=2), admitted("other", device_type="cpu"))
    assert order(d) == []


def test_pools_do_not_wait_for_each_other() -> None:
    d = Driver()
    d.feed(registered("a"), registered("b", pool="p2"))
    d.feed(admitted("big", ranks=9), admitted("j", ranks=2, pool="p2"))
    assert order(d) == ["j"] and d.last(GangAllocated).placements[0].node_id == "b"


def test_the_tightest_node_takes_a_gang_that_fits_on_one() -> None:
    d = Driver()
    d.feed(registered("a", slots=8), registered("b", slots=4), registered("c", slots=3))
    d.feed(admitted("j", ranks=3), admitted("k", ranks=3))
    assert [[p.node_id for p in g.placements] for g in d.all(GangAllocated)] == [["c"], ["b"]]


def test_a_gang_over_several_nodes_has_dense_ranks_and_the_first_nodes_rendezvous() -> None:
    d = Driver()
    d.feed(registered("a", slots=2), registered("b", slots=3), registered("c", slots=2))
    d.feed(admitted("j", ranks=6))
    gang = d.last(GangAllocated)
    assert [(p.node_id, p.first_rank, len(p.devices)) for p in gang.placements] == [("a", 0, 2), ("b", 2, 2), ("c", 4, 2)]
    assert (gang.master_address, gang.master_port) == ("a.local", 29500)


def test_the_rendezvous_port_is_that_of_rank_0s_slot() -> None:
    d = Driver()
    d.feed(registered("a", slots=3))
    d.feed(admitted("j"), admitted("k"))
    assert [g.master_port for g in d.all(GangAllocated)] == [29500, 29501]


def test_a_device_without_a_rendezvous_port_is_not_given() -> None:
    d = Driver()
    d.feed(registered("a", slots=3, rendezvous_ports=[29500]))
    d.feed(admitted("j"), admitted("k"))
    assert order(d) == ["j"]


def test_cpus_and_memory_beside_each_device_are_respected() -> None:
    for needs in ({"cpus_per_device": 3}, {"memory_gib_per_device": 3}):
        d = Driver()
        d.feed(registered("a", slots=4, cpus=7, memory_bytes=7 * 2**30))
        fields: dict[str, Any] = dict(needs)
        d.feed(admitted("j", **fields), admitted("k", **fields), admitted("l", **fields))
        assert order(d) == ["j", "k"]
        assert d.status("l").state is JobState.PENDING


def test_a_gang_has_one_device_type_throughout() -> None:
    d = Driver()
    d.feed(registered("a", slots=1, device_type="h100"), registered("b", slots=1, device_type="a100"))
    d.feed(admitted("j", ranks=2))
    assert order(d) == []


def test_the_first_that_waits_is_told_what_for_and_not_too_often() -> None:
    d = Driver()
    d.feed(registered("a", slots=2), policy_changed(blocking="strict"))
    d.feed(admitted("runs", ranks=1), admitted("big", ranks=2), admitted("small"))
    assert d.status("big").reason == "waiting for 2 free devices in pool default; free now: 1"
    assert d.status("small").reason == "queued in pool default"
    before = d.status("big").status_seq
    run_through(d, d.last(GangAllocated))
    d.feed(registered("b", slots=1), admitted("huge", ranks=9))
    for _ in range(20):
        d.tick(100)
    assert d.status("big").state is JobState.SCHEDULED and d.status("big").status_seq == before + 1
