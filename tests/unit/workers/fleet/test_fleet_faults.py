"""Emulated nodes in trouble: agents restart, machines die, networks go silent, verdicts come; the protocol holds."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests.support.fleet_stage import stage
from trainhouse.events import AttemptStarted, AttemptStopped, LaunchFailed, NodeHeartbeat, NodeLost, NodeRegistered, RankExited
from trainhouse.workers.fleet.faults import NodeFault
from trainhouse.workers.fleet.scripts import Defaults

WIDE = {0: [0, 1, 2, 3], 1: [0, 1]}


def test_a_restarted_agent_adopts_its_ranks_and_tells_how_they_ended_meanwhile() -> None:
    s = stage(durations="5")
    first, second = s.allocate("a", {0: [0, 1]}), s.allocate("b", {0: [2]}, labels={"emulate.run_s": "60"})
    s.run(2_000)
    s.strike(0, "restart", 10.0)
    s.run(5_000)
    assert not s.told(RankExited) and s.fleet.up() == 3
    s.run(6_000)
    registered = s.told(NodeRegistered)[-1]
    assert sorted(r.job_id for r in registered.running) == ["a", "b"]
    assert len({r.incarnation for r in s.told(NodeRegistered) if r.node_id == "p-00000"}) == 2
    assert [(e.job_id, e.exit_code) for e in s.told(RankExited)] == [("a", 0), ("a", 0)]
    s.answer(0, first, second)
    s.run(1_000)
    assert {e.job_id for e in s.told(AttemptStopped)} == {"a"}  # told again: the answer was given before the end was read
    assert len(s.told(AttemptStarted, "a")) == 2 and len(s.told(RankExited, "a")) == 2


def test_what_a_restarted_agent_missed_is_in_the_answer_to_its_registration() -> None:
    s = stage(durations="100")
    s.allocate("old", {0: [0]})
    s.run(1_000)
    s.strike(0, "restart", 2.0)
    new = s.allocate("new", {0: [1]})
    s.run(3_000)
    s.answer(0, new)
    s.run(30_000)
    assert [e.job_id for e in s.told(AttemptStarted)] == ["old", "old", "new"]
    assert [e.job_id for e in s.told(AttemptStopped)] == ["old"]


def test_an_agent_that_dies_while_it_launches_says_so() -> None:
    s = stage(durations="100")
    s.allocate("j", {0: [0]})
    s.run(100)
    s.strike(0, "restart", 1.0)
    s.run(3_000)
    assert [e.retryable for e in s.told(LaunchFailed, "j")] == [True]
    assert len(s.told(AttemptStopped, "j")) == 1 and not s.told(AttemptStarted, "j")


def test_a_machine_that_died_comes_back_in_another_boot_without_its_ranks() -> None:
    s = stage(durations="100")
    s.allocate("j", WIDE)
    s.run(1_000)
    s.strike(0, "die", 20.0)
    s.run(15_000)
    assert not s.told(RankExited)
    s.run(10_000)
    boots = [r.boot_id for r in s.told(NodeRegistered) if r.node_id == "p-00000"]
    assert len(set(boots)) == 2
    assert [(e.rank, e.exit_code, e.signal) for e in s.told(RankExited, "j")] == [(r, None, None) for r in range(4)]
    assert [e.boot_id for e in s.told(AttemptStopped, "j")] == [boots[1]]


def test_a_machine_that_stays_away_says_nothing_more() -> None:
    s = stage(durations="5")
    s.allocate("j", {0: [0]})
    s.run(1_000)
    s.strike(0, "die", None)
    before = len(s.records.sent)
    s.run(100_000)
    assert len(s.records.sent) == before and not s.fleet.nodes["p-00000"].up


def test_a_silent_node_trains_on_and_tells_all_when_it_is_heard_again() -> None:
    s = stage(durations="5", heartbeat_s=1.0)
    s.allocate("j", {0: [0, 1]})
    s.run(1_000)
    s.strike(0, "silent", 20.0)
    beats = len(s.records.beats)
    s.allocate("later", {0: [2]})
    s.run(15_000)
    assert not s.told(RankExited) and not any(e.event.node_id == "p-00000" for e in s.records.beats[beats:])  # type: ignore[attr-defined]
    s.run(20_000)
    assert len(s.told(RankExited, "j")) == 2 and len(s.told(AttemptStopped, "j")) == 1
    assert len(s.told(AttemptStopped, "later")) == 1
    assert len([r for r in s.told(NodeRegistered) if r.node_id == "p-00000"]) == 1


def test_a_node_given_up_registers_again_under_another_incarnation() -> None:
    s = stage(durations="100")
    s.allocate("j", {0: [0]})
    s.run(1_000)
    s.lose(0)
    s.run(1)
    found = [r for r in s.told(NodeRegistered) if r.node_id == "p-00000"]
    assert len(found) == 2 and found[0].incarnation != found[1].incarnation and found[0].boot_id == found[1].boot_id
    assert [r.job_id for r in found[1].running] == ["j"]
    s.answer(0)
    s.run(20_000)
    assert len(s.told(AttemptStopped, "j")) == 1


def test_a_fault_of_a_node_in_trouble_is_passed_over() -> None:
    s = stage()
    s.strike(0, "die", 10.0)
    s.strike(0, "silent", 10.0)
    assert s.fleet.tally.faults == {"die": 1} and s.fleet.tally.passed_over == 1


def test_a_failed_device_ends_one_rank_with_what_its_program_says() -> None:
    s = stage(durations="100")
    s.strike(0, "device", None)
    assert s.fleet.tally.passed_over == 1  # nothing runs there yet
    s.allocate("j", WIDE)
    s.run(1_000)
    s.strike(0, "device", None)
    s.run(5_000)
    assert [(e.rank, e.exit_code, "uncorrectable ECC" in e.reason) for e in s.told(RankExited)] == [(0, 1, True)]
    assert s.fleet.up() == 4 and [(f.kind, f.hit) for f in s.fleet.tally.struck] == [("device", (("j", 1),))]


def test_a_stopped_rank_shows_no_life_holds_its_gang_up_and_hears_only_sigkill() -> None:
    s = stage(durations="100", heartbeat_s=1.0, defaults=Defaults(step_s=1.0))
    s.allocate("j", WIDE)
    s.run(3_500)
    s.strike(1, "hang", None)
    struck_ms = s.now_ms
    s.run(6_000)
    newest = {b.event.node_id: b.event for b in s.records.beats if isinstance(b.event, NodeHeartbeat) and b.event.attempts}
    ranks = {r.rank: r for beat in newest.values() for r in beat.attempts[0].ranks}
    assert {r.step for r in ranks.values()} == {3}
    assert ranks[4].pulse_at_ms == struck_ms and all(ranks[n].pulse_at_ms > struck_ms + 4_000 for n in (0, 1, 2, 3, 5))
    s.release("j", grace_s=5.0)
    s.run(3_000)
    assert sorted(e.rank for e in s.told(RankExited)) == [0, 1, 2, 3, 5]
    s.run(5_000)
    assert [(e.rank, e.signal) for e in s.told(RankExited)][-1] == (4, 9)


def busy(after_s: float, node: int | None = None, **more: Any) -> NodeFault:
    fields = {"kind": "die", "for_s": 20.0} | more
    return NodeFault(0, node, busy_ms=round(after_s * 1000), **fields)


def test_a_fault_of_a_busy_node_strikes_one_that_has_trained_for_so_long() -> None:
    assert busy(3).struck({}) is None
    assert busy(3).struck({4: 2_999, 7: 3_000, 6: 9_000}) == 6
    assert busy(3, node=7).struck({4: 9_000, 7: 3_000}) == 7
    assert busy(3, node=4).struck({4: 2_999, 7: 3_000}) is None
    assert NodeFault(0, 4, "die", 1.0).struck({4: 9_000}) is None, "one that has its moment waits for no gang"


def test_a_fault_waits_for_its_gang_however_late_that_comes() -> None:
    s = stage(durations="15", planned=(busy(3, node=1),))
    s.run(600_000)
    assert s.fleet.tally.struck == deque()
    s.allocate("short", WIDE, labels={"emulate.run_s": "2"})
    s.run(10_000)
    s.allocate("elsewhere", {2: [0]})
    s.run(10_000)
    assert s.fleet.tally.struck == deque(), "the one is too short, the other on another node"
    s.allocate("long", WIDE)
    s.run(30_000)
    (struck,) = s.fleet.tally.struck
    assert (struck.node_id, struck.kind, struck.hit) == ("p-00001", "die", (("long", 1),))
    assert not [e for e in s.told(RankExited, "long") if e.exit_code == 0], "a gang that has lost a node does not end by itself"


def test_a_gang_that_waits_for_a_peer_does_not_train() -> None:
    s = stage(durations="15", planned=(busy(3, node=1),))
    s.allocate("cut", WIDE)
    s.run(2_000)
    s.strike(0, "die", None)
    s.run(60_000)
    assert [f.node_id for f in s.fleet.tally.struck] == ["p-00000"]


def test_a_fault_of_any_busy_node_strikes_before_its_gang_ends_though_the_loop_stood_still() -> None:
    s = stage(durations="15", planned=(busy(3),))
    s.allocate("long", {2: [0, 1], 3: [0]})
    s.run(300)
    s.now_ms += 60_000  # the process had no time, and then all is due at once
    s.run(1)
    assert [(f.node_id, f.hit) for f in s.fleet.tally.struck] == [("p-00002", (("long", 1),))]


@pytest.mark.parametrize("kind", ["die", "silent"])
def test_a_node_that_is_away_until_it_is_lost_is_back_once_the_detector_has_given_it_up(kind: str) -> None:
    s = stage(durations="100", planned=(busy(3, node=0, kind=kind, for_s=None, until_lost=True),))
    s.allocate("j", WIDE)
    s.run(60_000)
    assert s.fleet.nodes["p-00000"].troubled
    me = s.told(NodeRegistered)[0]
    fields = {"node_id": me.node_id, "incarnation": me.incarnation, "pool": me.pool, "silent_s": 9.0, "evidence": "silence", "at_ms": 5}
    s.verdict(NodeLost.model_validate(fields | {"boot_id": "another"}))
    s.run(1_000)
    assert s.fleet.nodes["p-00000"].troubled, "a verdict on another boot"
    s.verdict(NodeLost.model_validate(fields | {"boot_id": me.boot_id}))
    s.run(1_000)
    assert not s.fleet.nodes["p-00000"].troubled
    assert len({r.boot_id for r in s.told(NodeRegistered) if r.node_id == me.node_id}) == (2 if kind == "die" else 1)


def test_faults_of_busy_nodes_are_over_with_the_fleet() -> None:
    s = stage(durations="100", planned=(busy(3),))
    s.fleet.shut_down(1_000, s.now_ms)
    s.run(60_000)
    assert s.fleet.tally.struck == deque() and s.fleet.tally.passed_over == 1


def test_planned_faults_that_never_struck_are_counted_once_each_as_passed_over() -> None:
    later = NodeFault(90_000, 3, "die", 20.0)
    s = stage(durations="100", planned=(busy(3, node=0), busy(3, node=2), later, NodeFault(1_000, 1, "die", None)))
    s.allocate("j", {0: [0]})
    s.run(20_000)
    s.strike(0, "restart", 1.0)
    assert s.fleet.tally.passed_over == 1, "its node is away"
    s.fleet.shut_down(1_000, s.now_ms)
    assert s.fleet.tally.faults == {"die": 2} and s.fleet.tally.passed_over == 3
    s.run(600_000)
    s.fleet.shut_down(1_000, s.now_ms)
    assert s.fleet.tally.faults == {"die": 2} and s.fleet.tally.passed_over == 3
