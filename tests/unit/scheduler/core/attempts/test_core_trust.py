"""Nodes that are blamed too often: quarantine, self tests, the way back; and that a person's word stands above all of it."""

from typing import Any

import pytest

from tests.support.core_world import (
    Driver,
    admitted,
    degraded,
    exited,
    going,
    gone,
    lost,
    nodes_of,
    policy_changed,
    probed,
    registered,
    run_through,
    running,
    saved,
    stopped,
)
from trainhouse.events import (
    CheckpointRequested,
    CordonNode,
    Event,
    FailureBlamed,
    GangAllocated,
    JobState,
    NodeProbeAsked,
    NodeProbed,
    NodeRestricted,
    QuarantineNode,
    Restriction,
    UncordonNode,
)
from trainhouse.events.model.decisions import TrustChanged
from trainhouse.events.model.evidence import MAX_BLAMES, Trust
from trainhouse.events.wire import topics

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."


def person(kind: type[Event]) -> Event:
    return kind.model_validate({"pool": "default", "node_id": "a", "user": "ada", "reason": "looks odd"})


def blamed(d: Driver, times: int = 1, apart_ms: int = 60_000) -> None:
    """Job j fails for a device of node a, so often."""
    if "j" not in d.state.jobs:
        d.feed(admitted("j", ranks=2))
    for _ in range(times):
        gang = going(d, "j")
        d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
        d.tick(apart_ms)


def driver(**blame: Any) -> Driver:
    d = Driver()
    d.feed(registered("a"), policy_changed(failures={"blame": blame}))
    return d


def quarantined(**blame: Any) -> Driver:
    """Node a was blamed too often just now."""
    d = driver(quarantine_after=2, probe_after_s=60, **blame)
    blamed(d, 1)
    gang = going(d, "j")
    d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
    assert d.state.nodes["a"].restriction is Restriction.QUARANTINED
    return d


def test_a_node_that_is_blamed_too_often_is_quarantined_and_says_for_what() -> None:
    d = driver(quarantine_after=3)
    blamed(d, 2)
    assert not d.all(NodeRestricted)
    blamed(d, 1)
    told = d.last(NodeRestricted)
    assert (told.restriction, told.by) == (Restriction.QUARANTINED, "trainhouse")
    assert told.reason.startswith("3 failures within 24 h are blamed on it") and "job j" in told.reason
    assert d.status("j").state is JobState.PENDING
    assert [e.topic for e in d.effects if e.event == told] == [topics.VERDICTS]


def test_one_loss_counts_once_also_for_a_gang_that_ends_when_the_node_is_back() -> None:
    d = driver(quarantine_after=2)
    node = registered("a", slots=2)
    filler = running(d, "x", ranks=1)
    d.feed(registered("b", slots=1), admitted("j", ranks=2))
    run_through(d, filler)
    d.feed(registered("c", slots=1), admitted("k", ranks=2))
    gangs = [d.last(GangAllocated, job_id=job) for job in ("j", "k")]
    assert [sorted(nodes_of(gang)) for gang in gangs] == [["a", "b"], ["a", "c"]]
    d.feed(lost(node))
    first, second = gangs
    d.feed(*(stopped(first, n) for n in nodes_of(first) if n != "a"))
    d.feed(registered("a", slots=2, incarnation="inc-2"))
    d.feed(*(stopped(second, n) for n in nodes_of(second) if n != "a"))
    assert len(d.all(FailureBlamed)) == 2 and not d.all(NodeRestricted)
    assert len(d.state.nodes["a"].trust.blames) == 1


def test_failures_count_for_a_while_and_one_incident_once() -> None:
    d = driver(quarantine_after=2, window_h=1)
    blamed(d, 1)
    d.tick(2 * 3_600_000)
    blamed(d, 1)
    assert not d.all(NodeRestricted)
    d = Driver()
    d.feed(registered("a", slots=4), policy_changed(failures={"blame": {"quarantine_after": 2}}))
    for name in ("j", "k", "l", "m"):
        running(d, name, ranks=1)
    d.feed(lost(registered("a", slots=4)))
    assert len(d.state.nodes["a"].trust.blames) == 1 and not d.all(NodeRestricted)


def test_a_self_test_that_passes_lets_the_node_back_with_a_clean_slate() -> None:
    d = quarantined()
    d.tick(59_000)
    assert not d.all(NodeProbeAsked)
    d.tick(1_000)
    asked = d.last(NodeProbeAsked)
    assert (asked.node_id, asked.boot_id, asked.probe) == ("a", "boot-1", 1)
    assert [e.topic for e in d.effects if e.event == asked] == [topics.ALLOCATIONS]
    d.feed(probed(asked, True))
    told = d.last(NodeRestricted)
    assert (told.restriction, told.by) == (Restriction.NONE, "trainhouse") and d.state.nodes["a"].trust == Trust()
    assert d.state.probing == {} and d.last(GangAllocated, job_id="j").epoch == 3
    assert [e.topic for e in d.effects if isinstance(e.event, NodeProbed)] == [topics.VERDICTS]


def test_a_self_test_that_fails_is_repeated_after_twice_as_long_until_a_person_is_needed() -> None:
    d = quarantined(max_probes=3)
    for number, wait_ms in ((1, 60_000), (2, 120_000), (3, 240_000)):
        d.tick(wait_ms - 1)
        assert len(d.all(NodeProbeAsked)) == number - 1
        d.tick(1)
        assert d.last(NodeProbeAsked).probe == number
        d.feed(probed(d.last(NodeProbeAsked), False))
    d.tick(10**8)
    assert len(d.all(NodeProbeAsked)) == 3 and d.state.probing == {}
    told = d.last(NodeRestricted)
    assert told.restriction is Restriction.QUARANTINED
    assert "it failed 3 self tests (memory: a bit is stuck)" in told.reason and "trainhouse node uncordon a" in told.reason
    d.feed(person(UncordonNode))
    assert d.state.nodes["a"].trust == Trust() and d.last(GangAllocated).epoch == 3


def test_without_self_tests_a_quarantine_waits_for_a_person() -> None:
    d = quarantined(max_probes=0)
    d.tick(10**8)
    assert not d.all(NodeProbeAsked) and d.state.probing == {}


def test_a_test_that_nobody_answers_is_asked_for_again_and_a_stale_answer_counts_for_nothing() -> None:
    d = quarantined()
    d.tick(60_000)
    asked = d.last(NodeProbeAsked)
    assert d.feed(probed(asked, True, boot_id="boot-0")) == [] and d.feed(probed(asked, True, probe=2)) == []
    d.tick(600_000)
    assert [a.probe for a in d.all(NodeProbeAsked)] == [1, 1]
    d.feed(probed(asked, True))
    assert d.feed(probed(asked, True)) == []


def test_gangs_leave_a_node_in_quarantine_before_it_is_tested() -> None:
    d = Driver()
    d.feed(registered("a", slots=4), policy_changed(failures={"blame": {"quarantine_after": 1, "probe_after_s": 10}}))
    other = running(d, "other", ranks=2)
    gang = running(d, "j", ranks=2)
    d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
    request = d.last(CheckpointRequested)
    assert (request.job_id, request.deadline_ms) == ("other", d.now_ms + 120_000) and "in quarantine" in request.reason
    d.tick(20_000)
    assert not d.all(NodeProbeAsked), "it still runs something"
    d.feed(saved(other, 1), *gone(other))
    d.tick(5_000)
    assert d.all(NodeProbeAsked)


def test_a_node_that_is_away_is_not_tested() -> None:
    d = quarantined()
    d.feed(lost(registered("a")))
    d.tick(60_000)
    assert not d.all(NodeProbeAsked)
    assert not [x for x in d.tick(60_000) if isinstance(x, TrustChanged)], "it is not looked at all the time"
    d.feed(registered("a", boot_id="boot-2"))
    d.tick(5_000)
    assert d.last(NodeProbeAsked).boot_id == "boot-2"
    d.feed(registered("a", boot_id="boot-3"))
    d.tick(5_000)
    assert d.last(NodeProbeAsked).boot_id == "boot-3", "the agent that was asked is no more"


@pytest.mark.parametrize("kind", [CordonNode, QuarantineNode])
def test_what_a_person_closed_stays_closed(kind: type[Event]) -> None:
    d = driver(quarantine_after=1)
    gang = running(d, "j", ranks=2)
    if kind is CordonNode:
        d.feed(person(kind))
        d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
    else:
        d.feed(exited(gang, 0, 1, reason=XID), *gone(gang))
        d.feed(person(kind))
    assert d.last(NodeRestricted).by == "ada"
    d.tick(10**7)
    assert not d.all(NodeProbeAsked) and d.state.probing == {} and d.last(NodeRestricted).by == "ada"


def test_memory_errors_of_devices_count_too() -> None:
    d = driver(quarantine_after=2)
    d.feed(degraded("a-0"), degraded("a-1", since_ms=2))
    assert d.state.nodes["a"].restriction is Restriction.QUARANTINED
    assert "device a-1" in d.last(NodeRestricted).reason


def test_what_is_held_against_a_node_is_bounded_and_survives_a_snapshot() -> None:
    d = driver(quarantine_after=1000)
    blamed(d, MAX_BLAMES + 3)
    assert len(d.state.nodes["a"].trust.blames) == MAX_BLAMES
    again = d.machine.load(d.machine.dump(d.state))
    assert again.nodes["a"] == d.state.nodes["a"]
    d = quarantined()
    assert d.machine.load(d.machine.dump(d.state)).probing == d.state.probing != {}


# ---- devices that were closed alone


def closed(**blame: Any) -> Driver:
    """Device a-1 of two nodes' four made memory errors, under a gang that holds a."""
    d = Driver()
    d.feed(registered("a"), registered("b"), policy_changed(failures={"blame": {"probe_after_s": 60, **blame}}))
    running(d, "j", ranks=2)
    d.feed(degraded("a-1"))
    return d


def moved(d: Driver) -> None:
    """The gang has saved, and left the node."""
    gang = d.last(GangAllocated, job_id="j")
    d.feed(saved(gang, 1), *gone(gang))


def test_a_closed_device_is_tested_when_it_is_idle_and_let_back_while_the_others_work() -> None:
    d = closed()
    d.tick(60_000)
    assert not d.all(NodeProbeAsked), "its gang has not moved yet"
    moved(d)
    d.feed(admitted("k", ranks=1))
    assert d.last(GangAllocated, job_id="k").placements[0].devices == ("a-0",)
    d.tick(5_000)
    asked = d.last(NodeProbeAsked)
    assert (asked.devices, asked.probe) == (("a-1",), 1)
    d.feed(probed(asked, True))
    node = d.state.nodes["a"]
    assert (node.trust.closed_devices, node.trust.probe, len(node.trust.blames)) == ((), None, 1) and d.state.probing == {}
    assert d.last(TrustChanged).reason == "device a-1 passed its self test" and not d.all(NodeRestricted)
    d.feed(admitted("l", ranks=1))
    assert d.last(GangAllocated, job_id="l").placements[0].devices == ("a-1",)


def test_a_closed_device_that_fails_its_tests_waits_for_a_person() -> None:
    d = closed(max_probes=2)
    moved(d)
    for number, wait_ms in ((1, 60_000), (2, 120_000)):
        d.tick(wait_ms)
        assert d.last(NodeProbeAsked).probe == number
        d.feed(probed(d.last(NodeProbeAsked), False))
    told = d.last(TrustChanged)
    assert "device a-1 failed 2 self tests (memory: a bit is stuck)" in told.reason and "trainhouse node uncordon a" in told.reason
    d.tick(10**8)
    assert d.state.nodes["a"].trust.closed_devices == ("a-1",) and len(d.all(NodeProbeAsked)) == 2
    d.feed(person(UncordonNode))
    assert d.state.nodes["a"].trust == Trust()


def test_errors_while_a_device_is_tested_make_the_test_void() -> None:
    d = closed()
    moved(d)
    d.tick(60_000)
    asked = d.last(NodeProbeAsked)
    d.feed(degraded("a-1", since_ms=2))
    assert d.feed(probed(asked, True)) == [] and d.state.nodes["a"].trust.closed_devices == ("a-1",)
    d.tick(60_000)
    assert len(d.all(NodeProbeAsked)) == 2


def test_a_device_that_is_closed_while_another_is_tested_has_its_turn_after() -> None:
    d = closed()
    moved(d)
    d.tick(60_000)
    first = d.last(NodeProbeAsked)
    d.feed(degraded("a-0"))
    assert d.feed(probed(first, True)) == [], "the plan is a new one, for both"
    d.tick(60_000)
    assert d.last(NodeProbeAsked).devices == ("a-0", "a-1")
    d.feed(probed(d.last(NodeProbeAsked), True))
    assert d.state.nodes["a"].trust.closed_devices == ()


def test_a_reboot_needs_no_test_and_a_person_who_closes_the_node_ends_it() -> None:
    d = closed()
    moved(d)
    d.feed(registered("a", boot_id="boot-2"))
    assert d.state.nodes["a"].trust.probe is None and d.state.probing == {}
    d = closed()
    moved(d)
    d.feed(person(CordonNode))
    d.tick(60_000)
    assert not d.all(NodeProbeAsked) and d.state.nodes["a"].trust.closed_devices == ("a-1",)


def test_without_self_tests_a_closed_device_waits_for_a_person_or_a_reboot() -> None:
    d = closed(max_probes=0)
    moved(d)
    d.tick(10**8)
    assert not d.all(NodeProbeAsked) and d.state.probing == {}
