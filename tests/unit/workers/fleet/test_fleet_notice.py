"""Emulated machines that are announced to go: their gangs save and leave, the machine goes, and comes back in another boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet_stage import Stage, stage
from trainhouse.events import AttemptStopped, CheckpointCompleted, NodeNoticed, NodeProbeAsked, NodeProbed, NodeRegistered, RankExited
from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.faults import DEADLINE_S, NodeFault, parse_faults
from trainhouse.workers.fleet.script_file import read_script

WIDE = {0: [0, 1], 1: [0, 1]}


def boots(s: Stage) -> list[str]:
    return [r.boot_id for r in s.told(NodeRegistered) if r.node_id == "p-00000"]


def test_a_gang_that_is_asked_by_the_scheduler_saves_and_leaves_before_its_machine_goes() -> None:
    s = stage(durations="1000")
    s.allocate("j", WIDE)
    s.run(5_000)
    s.strike(0, "notice", 20.0)
    (told,) = s.told(NodeNoticed)
    assert (told.node_id, told.deadline_ms - told.at_ms) == ("p-00000", DEADLINE_S * 1000)
    s.ask_checkpoint("j")
    s.run(5_000)
    assert len(s.told(CheckpointCompleted, "j")) == 2  # on checkpoints and on control
    assert [e.exit_code for e in s.told(RankExited, "j")] == [75] * 4 and len(s.told(AttemptStopped, "j")) == 2
    assert s.agent(0).alive and s.fleet.up() == 3
    s.strike(0, "die", 5.0)
    assert s.fleet.tally.passed_over == 1, "one fault at a time"
    s.run(25_000)
    assert s.fleet.nodes["p-00000"].agent is None and len(boots(s)) == 1
    s.run(20_000)
    assert len(set(boots(s))) == 2 and s.fleet.up() == 4


def test_nobody_answers_and_the_gang_saves_and_leaves_all_the_same() -> None:
    s = stage(durations="1000")
    s.allocate("j", WIDE)
    s.run(5_000)
    s.strike(0, "notice", None)
    s.run(9_000)
    assert not s.told(RankExited)
    s.run(3_000)
    assert [e.exit_code for e in s.told(RankExited, "j")] == [75] * 4
    s.run(100_000)
    assert len(boots(s)) == 1


def test_who_saves_for_too_long_is_ended_with_its_machine() -> None:
    s = stage(durations="1000")
    s.allocate("j", {0: [0]}, labels={"emulate.save_s": "100", "emulate.stop_s": "50"})
    s.run(5_000)
    s.strike(0, "notice", 5.0)
    s.run(40_000)
    assert [e.signal for e in s.told(RankExited, "j")] == [9] and len(set(boots(s))) == 2


def test_a_gang_that_starts_while_its_machine_goes_leaves_too() -> None:
    s = stage(durations="1000")
    s.strike(0, "notice", 5.0)
    s.allocate("j", {0: [0]})
    s.run(15_000)
    assert [e.exit_code for e in s.told(RankExited, "j")] == [75]


def test_an_emulated_machine_says_that_nothing_of_it_could_be_tried() -> None:
    s = stage()
    me = s.agent(0).state.identity
    asked = NodeProbeAsked.model_validate({"node_id": me.node_id, "boot_id": me.boot_id, "pool": me.pool, "probe": 2, "at_ms": 5})
    s.hear(asked)
    (told,) = s.told(NodeProbed)
    assert told.passed and told.probe == 2 and "emulated" in told.checks[0].found


def test_notices_are_planned_by_rate_and_by_script(tmp_path: Path) -> None:
    assert parse_faults("notice=2/h,notice=1/h:never").rates[0].for_s == 120.0
    path = tmp_path / "s.yaml"
    path.write_text("faults: [{at_s: 1, node: 0, kind: notice, deadline_s: 60, for_s: never}, {at_s: 2, node: 1, kind: notice}]")
    assert read_script(path, 4).faults == (NodeFault(1000, 0, "notice", None, 60.0), NodeFault(2000, 1, "notice", 120.0))
    for wrong in ("kind: die, deadline_s: 3", "kind: notice, deadline_s: 0"):
        path.write_text(f"faults: [{{at_s: 1, node: 0, {wrong}}}]")
        with pytest.raises(InvalidPlanError, match="deadline_s"):
            read_script(path, 4)
