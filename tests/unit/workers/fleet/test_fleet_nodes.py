"""Emulated nodes in virtual time: the agent's protocol, whatever goes wrong with ranks, agents, machines and the network."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.support.fleet_stage import PARTITION, stage
from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointCompleted,
    DumpStacks,
    ExecuteCommand,
    LaunchFailed,
    NodeHeartbeat,
    OperationReplied,
    Order,
    ProgressReported,
    RankExited,
    RankState,
)
from trainhouse.events.wire.topics import CHECKPOINTS, CONTROL
from trainhouse.workers.fleet.faults import FaultPlan
from trainhouse.workers.fleet.gangs import EXIT_STOPPED
from trainhouse.workers.fleet.scripts import Defaults, Rule

WIDE = {0: [0, 1, 2, 3], 1: [0, 1]}


def test_a_gang_starts_steps_and_ends_on_all_its_nodes() -> None:
    s = stage(durations="12")
    s.allocate("j", WIDE)
    s.run(60_000)
    assert [e.node_id for e in s.told(AttemptStarted, "j")] == ["p-00000", "p-00001"]
    assert [(e.step, e.total_steps) for e in s.told(ProgressReported, "j")] == [(1, 3), (2, 3), (3, 3)]
    assert sorted((e.rank, e.exit_code) for e in s.told(RankExited, "j")) == [(r, 0) for r in range(6)]
    assert len(s.told(AttemptStopped, "j")) == 2
    assert s.fleet.empty() and len(s.fleet.gangs) == 0 and not s.fleet._holders


def test_reports_come_in_the_order_of_a_real_agent() -> None:
    s = stage(durations="1")
    s.allocate("j", {2: [0]})
    s.run(5_000)
    kinds = [type(e.event).__name__ for t, e in s.records.sent if getattr(e.event, "job_id", "") == "j"]
    assert kinds == ["AttemptStarted", "ProgressReported", "RankExited", "AttemptStopped"]
    assert {t for t, e in s.records.sent} == {CONTROL}


def test_nothing_is_finished_before_the_brokers_hold_its_end() -> None:
    s = stage(durations="1")
    s.allocate("j", {0: [0]})
    s.run(5_000, acks=False)
    assert len(s.told(AttemptStopped, "j")) == 1 and not s.fleet.empty()
    s.run(1)
    assert s.fleet.empty()


def test_work_begins_only_when_the_slowest_node_is_up() -> None:
    s = stage(durations="1", faults=FaultPlan(slow_share=1.0, slow_s=7.0))
    s.allocate("j", WIDE)
    s.run(7_000)
    assert not s.told(AttemptStarted) and not s.told(RankExited)
    s.run(3_000)
    assert len(s.told(RankExited, "j")) == 6


def test_heartbeats_tell_of_every_rank_and_its_step() -> None:
    s = stage(durations="100", heartbeat_s=1.0)
    s.allocate("j", {0: [0, 1]})
    s.run(8_000)
    beat = next(e.event for e in reversed(s.records.beats) if isinstance(e.event, NodeHeartbeat) and e.event.node_id == "p-00000")
    assert [(r.rank, r.state, r.step, r.pid) for r in beat.attempts[0].ranks] == [
        (0, RankState.RUNNING, 1, None),
        (1, RankState.RUNNING, 1, None),
    ]
    assert len({(e.event.node_id, e.event.sequence) for e in s.records.beats}) == len(s.records.beats)  # type: ignore[attr-defined]
    assert len(s.records.beats) == 4 * (8 + 1)  # one more before each registration


def test_a_crash_ends_one_rank_and_its_peers_wait_until_released() -> None:
    s = stage(rules=(Rule("job", {"crash_s": 2, "crash_rank": 5}),))
    s.allocate("j", WIDE)
    s.run(30_000)
    assert [(e.rank, e.exit_code) for e in s.told(RankExited, "j")] == [(5, 1)]
    s.release("j")
    s.run(1_000)
    assert sorted((e.rank, e.signal) for e in s.told(RankExited, "j")[1:]) == [(r, 15) for r in range(5)]
    assert len(s.told(AttemptStopped, "j")) == 2
    s.allocate("j", {2: [0, 1, 2, 3], 3: [0, 1]}, epoch=2)  # by default the crash is of the first attempt only
    s.run(30_000)
    assert [e.exit_code for e in s.told(RankExited, "j")[6:]] == [0] * 6


def test_ranks_that_ignore_sigterm_are_killed_when_the_grace_is_over() -> None:
    s = stage(durations="1000", defaults=Defaults(stop_s=60.0))
    s.allocate("j", {0: [0]})
    s.run(1_000)
    s.release("j", grace_s=3.0)
    s.run(2_900)
    assert not s.told(RankExited)
    s.run(200)
    assert [e.signal for e in s.told(RankExited)] == [9]


def test_a_job_asked_to_save_and_stop_does_and_the_next_attempt_goes_on_from_there() -> None:
    s = stage(durations="100", defaults=Defaults(checkpoint_s=0))
    s.allocate("j", WIDE)
    s.run(40_200)
    s.ask_checkpoint("j")
    s.run(2_000)
    saved = s.told(CheckpointCompleted, "j")
    assert len(saved) == 2 and saved[0] == saved[1] and saved[0].step == 8
    assert {t for t, e in s.records.sent if isinstance(e.event, CheckpointCompleted)} == {CONTROL, CHECKPOINTS}
    assert {e.exit_code for e in s.told(RankExited, "j")} == {75} and len(s.told(AttemptStopped, "j")) == 2
    s.allocate("j", {2: [0, 1, 2], 3: [1, 2, 3]}, epoch=2)
    s.run(59_000)
    assert len(s.told(RankExited, "j")) == 6
    s.run(2_000)
    assert [e.exit_code for e in s.told(RankExited, "j")[6:]] == [0] * 6


def test_the_exit_code_of_a_saved_and_stopped_rank_is_the_sessions() -> None:
    # Read by itself: the session's package imports torch.
    of_session = runpy.run_path(str(Path(__file__).parents[4] / "workers" / "session" / "errors.py"))
    assert of_session["EXIT_STOPPED"] == EXIT_STOPPED


def test_periodic_checkpoints_are_numbered_without_a_gap() -> None:
    s = stage(durations="100", defaults=Defaults(checkpoint_s=20))
    s.allocate("j", {0: [0]})
    s.run(200_000)
    commits = [e.commit for t, e in ((t, e.event) for t, e in s.records.sent) if t == CONTROL and isinstance(e, CheckpointCompleted)]
    assert commits == list(range(commits[0], commits[0] + 4))


def test_a_job_with_a_wish_that_cannot_be_is_refused_for_good() -> None:
    s = stage()
    s.allocate("j", {0: [0]}, labels={"emulate.run_s": "soon"})
    s.run(1_000)
    failed = s.told(LaunchFailed, "j")
    assert len(failed) == 1 and not failed[0].retryable and "emulate.run_s is 'soon'" in failed[0].reason
    assert len(s.told(AttemptStopped, "j")) == 1


def test_an_order_that_is_not_newer_is_dropped() -> None:
    s = stage(durations="1")
    event = s.allocate("j", {0: [0]})
    s.run(5_000)
    s.hear(event, Order(PARTITION, 1, 0))
    s.run(5_000)
    assert len(s.told(AttemptStarted, "j")) == 1 and len(s.told(AttemptStopped, "j")) == 1


def test_a_newer_epoch_elsewhere_ends_the_older_one_here_without_grace() -> None:
    s = stage(durations="100")
    s.allocate("j", {0: [0]})
    s.run(1_000)
    s.allocate("j", {1: [0]}, epoch=2)
    s.run(1_000)
    assert [(e.epoch, e.signal) for e in s.told(RankExited, "j")] == [(1, 9)]


def test_shutting_down_ends_every_rank_and_tells_it() -> None:
    s = stage(durations="100")
    s.allocate("a", WIDE)
    s.allocate("b", {3: [0]})
    s.run(1_000)
    s.strike(2, "silent", 100.0)
    s.fleet.shut_down(2_000, s.now_ms)
    s.run(3_000)
    assert s.fleet.empty() and len(s.told(AttemptStopped)) == 3


def test_fences_of_a_node_are_bounded() -> None:
    from trainhouse.workers.fleet.disk import MAX_FENCES

    s = stage(nodes=1, durations="0.1")
    for number in range(MAX_FENCES + 40):
        s.allocate(f"j{number}", {0: [0]})
        s.run(1_000)
    assert len(s.agent(0).state.fences) <= MAX_FENCES + 1 and len(s.told(AttemptStopped)) == MAX_FENCES + 40


def test_while_the_brokers_are_behind_only_progress_is_left_out() -> None:
    s = stage(durations="12")
    s.allocate("j", {0: [0]})
    s.records.full = True
    s.run(8_000)
    assert s.told(AttemptStarted) and not s.told(ProgressReported)
    s.records.full = False
    s.run(10_000)
    assert [e.step for e in s.told(ProgressReported)] == [2, 3] and len(s.told(RankExited)) == 1


def test_a_person_who_asks_an_emulated_rank_is_answered() -> None:
    s = stage(durations="100")
    s.allocate("j", WIDE)
    s.run(1_000)
    fields = {"request_id": "r", "node_id": "p-00001", "job_id": "j", "expires_at_ms": s.now_ms + 1}
    s.verdict(DumpStacks.model_validate(fields))
    s.verdict(ExecuteCommand.model_validate(fields | {"rank": 0, "command": ("ls",)}))
    s.verdict(DumpStacks.model_validate(fields | {"expires_at_ms": s.now_ms}))
    replies = s.told(OperationReplied)
    assert [(r.rank, r.done) for r in replies] == [(4, True), (5, True), (0, True)]
    assert "emulated" in replies[0].text and "does not run on this node" in replies[2].text
