"""What people ask of a pool: judged before it counts, told either way, the same when asked again, and kept through snapshots."""

from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, policy_changed, progress, registered, run_through, started, stopped, token
from trainhouse.events import (
    ChangeRefused,
    CheckpointCompleted,
    CheckpointRequested,
    CordonNode,
    DrainNode,
    Event,
    GangAllocated,
    GangReleased,
    JobState,
    NodeRestricted,
    PolicyApplied,
    QuarantineNode,
    Restriction,
    UncordonNode,
)
from trainhouse.events.model.policy import Blocking
from trainhouse.events.wire import topics


def about(node_id: str = "a", pool: str = "default", **more: Any) -> dict[str, Any]:
    return {"pool": pool, "node_id": node_id, "reason": "new driver", "user": "ada"} | more


def cordon(**more: Any) -> CordonNode:
    return CordonNode.model_validate(about(**more))


def uncordon(**more: Any) -> UncordonNode:
    return UncordonNode.model_validate(about(**more))


def drain(**more: Any) -> DrainNode:
    return DrainNode.model_validate(about(**more))


def quarantine(**more: Any) -> QuarantineNode:
    return QuarantineNode.model_validate(about(**more))


def running(nodes: int = 1, talks: bool = True, **fields: Any) -> tuple[Driver, GangAllocated]:
    """A driver whose nodes a, b … run job j of two ranks on the first of them."""
    d = Driver()
    d.feed(*(registered(name) for name in "abc"[:nodes]))
    d.feed(admitted("j", ranks=2, **fields))
    gang = d.last(GangAllocated)
    d.feed(*(started(gang, p.node_id) for p in gang.placements), *([progress(gang, 1)] if talks else []))
    return d, gang


def saved(gang: GangAllocated) -> CheckpointCompleted:
    base = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "at_ms": 5, "commit": 1, "step": 10}
    return CheckpointCompleted.model_validate(base | {"uri": "s3://x", "bytes_total": 1, "bytes_new": 1})


def test_a_policy_counts_from_its_event_on_and_is_made_public() -> None:
    d = Driver()
    d.feed(registered("a"), policy_changed(blocking="strict", text="blocking: strict"))
    applied = d.last(PolicyApplied)
    assert (applied.version, applied.user, applied.text, applied.applied_at_ms) == (1, "ada", "blocking: strict", d.now_ms)
    assert d.state.book.policy("default").blocking is Blocking.STRICT
    effect = next(e for e in d.effects if e.topic == topics.POLICIES)
    assert (effect.key, effect.event) == ("default", applied)
    assert not any(isinstance(x, PolicyApplied) for x in d.feed(policy_changed(blocking="strict"))), "it counts already"
    d.feed(policy_changed(blocking="skip"))
    assert d.last(PolicyApplied).version == 2
    again = d.machine.load(d.machine.dump(d.state))
    assert again.book.policy("default").blocking is Blocking.SKIP and again.pool("default").policy_version == 2


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"teams": [{"name": "lm", "guaranteed": {"h999": 4}}]}, "no node of this pool has a device of type h999; it has cpu"),
        ({"teams": [{"name": "lm", "limit": {"any": 4, "h999": 1}}]}, "no node of this pool has a device of type h999"),
        ({"run_times": "true"}, "run_times: true ones are known in simulations only"),
    ],
)
def test_a_policy_that_cannot_be_obeyed_is_refused_and_the_old_one_stays(policy: dict[str, Any], told: str) -> None:
    d = Driver()
    d.feed(registered("a"), policy_changed(blocking="strict"))
    d.feed(token(policy_changed(**policy), seq=9))
    refused = d.last(ChangeRefused)
    assert told in refused.reason and (refused.event_id, refused.user) == ("dir:3:9:0", "ada")
    assert d.state.book.policy("default").blocking is Blocking.STRICT and len(d.all(PolicyApplied)) == 1
    assert [e.key for e in d.effects if e.event == refused] == ["dir:3:9:0"]


def test_a_policy_may_come_before_the_nodes() -> None:
    d = Driver()
    d.feed(policy_changed(teams=[{"name": "lm", "guaranteed": {"h999": 4}}]))
    assert d.all(PolicyApplied) and not d.all(ChangeRefused)


def test_a_team_over_its_limit_waits_and_one_that_could_never_start_is_refused() -> None:
    d = Driver()
    d.feed(registered("a", slots=8), policy_changed(teams=[{"name": "lm", "limit": {"any": 2}}]))
    d.feed(admitted("one", ranks=2, team="lm"), admitted("two", ranks=1, team="lm"), admitted("huge", ranks=3, team="lm"))
    assert [g.job_id for g in d.all(GangAllocated)] == ["one"]
    assert d.status("huge").state is JobState.REJECTED
    assert "team lm" in d.status("huge").reason and "at most 2" in d.status("huge").reason
    run_through(d, d.last(GangAllocated))
    assert d.last(GangAllocated).job_id == "two"


def test_a_cordoned_node_gets_nothing_new_until_it_is_opened_however_often_it_registers() -> None:
    d, _ = running(nodes=2)
    assert {p.node_id for p in d.last(GangAllocated).placements} == {"a"}
    d.feed(cordon(node_id="b"))
    d.feed(registered("b", incarnation="inc-2"), registered("b", boot_id="boot-2"))
    d.feed(admitted("k", ranks=2))
    assert d.status("k").state is JobState.PENDING and d.status("j").state is JobState.RUNNING
    d.feed(uncordon(node_id="b"))
    assert d.last(GangAllocated).job_id == "k"


def test_asking_again_for_what_is_so_does_nothing() -> None:
    d, _ = running()
    assert not [x for x in d.feed(uncordon()) if isinstance(x, NodeRestricted)]
    d.feed(cordon())
    assert not [x for x in d.feed(cordon()) if isinstance(x, NodeRestricted)]
    d.feed(drain(), drain(), drain())
    assert len(d.all(NodeRestricted)) == 2 and len(d.all(CheckpointRequested)) == 1


@pytest.mark.parametrize("event", [cordon(node_id="x"), uncordon(node_id="x"), drain(node_id="x"), quarantine(pool="other")])
def test_a_node_that_the_pool_does_not_have_is_refused_with_those_that_it_has(event: Event) -> None:
    d = Driver()
    d.feed(registered("a"), registered("b"))
    d.feed(event)
    reason = d.last(ChangeRefused).reason
    assert "has no node" in reason and ("its nodes: a, b" in reason or "it is in pool default" in reason)
    assert not d.all(NodeRestricted)


def test_a_drained_gang_saves_leaves_and_starts_elsewhere_at_no_cost_to_its_restarts() -> None:
    d, gang = running(nodes=2, limits={"restarts": 0})
    d.feed(drain(deadline_s=300))
    request = d.last(CheckpointRequested)
    assert request.then_stop and request.deadline_ms == d.now_ms + 300_000
    assert d.status("j").state is JobState.CHECKPOINTING and "node a is drained: new driver (by ada)" in d.status("j").reason
    d.feed(saved(gang))
    assert d.status("j").state is JobState.PREEMPTED and d.last(GangReleased).node_ids == ("a",)
    d.feed(exited(gang, 0, 75), exited(gang, 1, 75), stopped(gang, "a"))
    again = d.last(GangAllocated)
    assert (again.epoch, [p.node_id for p in again.placements]) == (2, ["b"])
    assert d.state.jobs["j"].tally.failures == d.state.jobs["j"].tally.losses == 0
    assert d.state.nodes["a"].restriction is Restriction.DRAINING


def test_a_drain_does_not_wait_for_ever() -> None:
    d, _ = running(nodes=2)
    d.feed(drain(deadline_s=60))
    d.tick(59_000)
    assert not d.all(GangReleased)
    d.tick(1_000)
    assert d.last(GangReleased).grace_s == 15.0


def test_a_gang_that_never_spoke_is_released_with_its_grace_when_drained() -> None:
    d, _ = running(talks=False)
    d.feed(drain())
    assert not d.all(CheckpointRequested) and d.last(GangReleased).grace_s == 15.0 and d.status("j").state is JobState.PREEMPTED


def test_a_gang_in_quarantine_is_stopped_at_once_and_is_not_asked_to_save() -> None:
    d, gang = running(nodes=2, limits={"restarts": 0})
    d.feed(quarantine(reason="ECC errors"))
    assert not d.all(CheckpointRequested) and d.last(GangReleased).grace_s == 2.0
    d.feed(stopped(gang, "a"))
    assert [p.node_id for p in d.last(GangAllocated).placements] == ["b"]


def test_repeats_of_the_directory_are_dropped() -> None:
    d, _ = running()
    d.feed(token(cordon(), seq=5), token(uncordon(), seq=6))
    assert d.feed(token(cordon(), seq=5)) == []
    assert d.state.nodes["a"].restriction is Restriction.NONE
