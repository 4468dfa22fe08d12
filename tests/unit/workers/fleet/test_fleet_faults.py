"""Emulated nodes in trouble: agents restart, machines die, networks go silent, verdicts come; the protocol holds."""

from __future__ import annotations

from tests.support.fleet_stage import stage
from trainhouse.events import AttemptStarted, AttemptStopped, LaunchFailed, NodeHeartbeat, NodeRegistered, RankExited
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
