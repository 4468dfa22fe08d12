"""The session inside real ranks: requests, signals, deaths, and life without Trainhouse."""

import json
import math
import os
import signal
from pathlib import Path

import pytest

from tests.integration.launcher_support import Attempt
from tests.integration.session_support import GPT, SMALL, JobRun, Runs
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher, terminate
from trainhouse.workers.session import EXIT_STOPPED

pytestmark = pytest.mark.stack

TINY = """
import os, signal, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Linear(4, 1)
wrapped = DistributedDataParallel(model) if session.world_size > 1 else model
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01, momentum=0.9)
session.track(model=wrapped, optimizer=optimizer)
for step in session.steps(int(sys.argv[1])):
    with session.data_wait():
        time.sleep(0.01)
    loss = wrapped(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss)
    if step == 5 and sys.argv[2] == "die": os.kill(os.getpid(), signal.SIGKILL)
    if step == 5 and sys.argv[2] == "raise": raise ValueError("of its own making")
print("finished at", session.step)
if sys.argv[2] == "linger": time.sleep(600)
"""


def tiny(runs: Runs, epoch: int = 0, steps: int = 100_000, then: str = "go", ranks: int = 2, **spec: object) -> JobRun:
    return runs.start(TINY, (str(steps), then), epoch, ranks, **spec)


def ask(run: JobRun, **fields: object) -> None:
    request = {"id": "r1", "kind": "checkpoint", "reason": "a test", "deadline_ms": 2**53, "then_stop": False}
    scratch = run.paths.request.with_suffix(".new")
    scratch.write_text(json.dumps(request | fields))
    os.replace(scratch, run.paths.request)


def last_progress(run: JobRun, rank: int = 0) -> dict[str, object]:
    return [line[1] for line in run.lines(rank) if line[0] == "p"][-1]  # type: ignore[return-value]


def test_all_ranks_save_and_stop_when_asked_and_the_next_attempt_goes_on(runs: Runs) -> None:
    first = tiny(runs)
    until(lambda: len(first.losses()) > 3)
    ask(first, then_stop=True)
    assert [first.exit_of(r).exit_code for r in (0, 1)] == [EXIT_STOPPED, EXIT_STOPPED], first.stderr()
    (saved,) = first.events("CheckpointCompleted")
    step = saved[2]["step"]  # type: ignore[index, call-overload]
    assert step > 3 and saved[3] == f"job-{runs.folder.name}:commit:{saved[2]['commit']}"  # type: ignore[index, call-overload]
    assert last_progress(first, 0)["step"] == last_progress(first, 1)["step"] == step
    second = tiny(runs, epoch=1, steps=step + 3)
    assert [second.exit_of(r).exit_code for r in (0, 1)] == [0, 0], second.stderr()
    assert sorted(second.losses()) == [step, step + 1, step + 2]
    assert second.stdout() == f"finished at {step + 3}\n"
    assert second.events("CheckpointRestored")[0][2]["step"] == step  # type: ignore[index, call-overload]
    assert second.events("CheckpointCompleted")[0][3] == saved[3]  # told again: a crash before it was sent loses nothing


def test_a_request_without_a_stop_is_answered_once(runs: Runs) -> None:
    run = tiny(runs)
    until(lambda: len(run.losses()) > 3)
    ask(run)
    until(lambda: run.events("CheckpointCompleted"))
    count = len(run.losses())
    until(lambda: len(run.losses()) > count + 60)
    assert len(run.events("CheckpointCompleted")) == 1
    ask(run, id="r2")
    until(lambda: len(run.events("CheckpointCompleted")) == 2)


def test_the_clock_asks_for_saves_too(runs: Runs) -> None:
    run = tiny(runs, checkpoint={"every_s": 0.3})
    until(lambda: len(run.events("CheckpointCompleted")) >= 2)
    stalled = last_progress(run)
    assert float(stalled["save_stall_s"]) > 0 and float(stalled["data_wait_s"]) > 0  # type: ignore[arg-type]


def test_sigterm_ends_at_a_step_boundary_without_a_save(runs: Runs) -> None:
    run = tiny(runs)
    until(lambda: len(run.losses()) > 3)
    terminate(run.paths)
    codes = [run.exit_of(r).exit_code for r in (0, 1)]
    assert 128 + signal.SIGTERM in codes  # the other may see its peer leave first
    assert run.events("CheckpointStarted") == []


def test_sigterm_after_the_last_step_ends_at_once(runs: Runs) -> None:
    run = tiny(runs, steps=2, then="linger", ranks=1)
    until(lambda: "finished" in run.stdout())
    terminate(run.paths)
    assert run.exit_of().exit_code == 128 + signal.SIGTERM


def test_a_logged_metric_survives_a_sigkill_right_after_the_call(runs: Runs) -> None:
    run = tiny(runs, then="die", ranks=1)
    assert run.exit_of().signal == signal.SIGKILL
    assert sorted(run.losses()) == [0, 1, 2, 3, 4, 5]
    assert all(math.isfinite(loss) for loss in run.losses().values())


def test_an_exception_leaves_the_last_progress_and_the_traceback(runs: Runs) -> None:
    run = tiny(runs, then="raise", ranks=1)
    assert run.exit_of().exit_code == 1
    assert last_progress(run)["step"] == 5
    assert "ValueError: of its own making" in run.stderr()


def test_the_traceback_of_a_rank_that_raises_is_in_its_output_once(runs: Runs) -> None:
    run = tiny(runs, then="raise", ranks=2)
    assert run.exit_of(0).exit_code == 1
    said = run.stderr(0) + run.stdout(0)
    assert (said.count("Traceback (most recent call last)"), said.count("ValueError: of its own making")) == (1, 1), said


def test_an_older_attempt_cannot_begin_after_a_newer_one(runs: Runs) -> None:
    newer = tiny(runs, epoch=3, steps=2)
    assert [newer.exit_of(r).exit_code for r in (0, 1)] == [0, 0], newer.stderr()
    older = tiny(runs, epoch=2, steps=2)
    assert [older.exit_of(r).exit_code for r in (0, 1)] == [1, 1]
    assert "StaleEpochError" in older.stderr(0) and "StaleEpochError" in older.stderr(1)
    assert older.losses() == {}


def test_the_example_runs_without_trainhouse(tmp_path: Path, launcher: Launcher) -> None:
    attempt = Attempt(tmp_path / "plain", "", ranks=2)
    command = (*GPT, *SMALL, "--steps", "4", "--checkpoint-every", "2")
    try:
        assert launcher.start(
            attempt.paths, attempt.launches(command, {"TRAINHOUSE_RUN_DIR": str(tmp_path / "metrics")}), attempt.store
        ).warm
        assert [attempt.exit_of(r).exit_code for r in (0, 1)] == [0, 0], attempt.stderr()
        assert "held-out bits per byte" in attempt.stdout() and attempt.stdout(1) == ""
        assert (tmp_path / "metrics" / "rank-1" / "spool.jsonl").stat().st_size > 0
    finally:
        attempt.close()
