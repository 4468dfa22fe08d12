"""Real ranks: a stopped one falls silent while its peers go on, and a diverged loss ends all of them unsaved."""

import os
import signal
import time
from typing import Any

import pytest

from tests.integration.session_support import JobRun, Runs
from tests.support.waiting import until
from trainhouse.workers.launcher import ports
from trainhouse.workers.launcher.processes import read_json
from trainhouse.workers.session import EXIT_DIVERGED

pytestmark = pytest.mark.stack

SCRIPT = """
import atexit, math, os, signal, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

atexit.register(os.kill, os.getpid(), signal.SIGTERM)  # the release of the gang, while a rank ends by itself
session = Session.start()
model = torch.nn.Linear(4, 1)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
session.track(model=wrapped, optimizer=optimizer)

whole = torch.nn.Linear(2, 2)
session._boundary.work.watch(whole)
torch.compile(whole, backend="eager", fullgraph=True)(torch.ones(2))  # raises where our hooks would break the graph

bad, committed = map(int, sys.argv[1:])
spool = os.path.join(os.environ["TRAINHOUSE_RANK_DIR"], "spool.jsonl")
for step in session.steps(100_000):
    while session.rank == 0 and step == bad - 1 and open(spool).read().count('"CheckpointCompleted"') < committed:
        time.sleep(0.05)  # however long a busy machine uploads
    with session.data_wait():
        time.sleep(0.15 if session.rank else 0.01)
    loss = wrapped(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss * math.nan if step == bad and session.rank == 1 else loss)
"""


def start(runs: Runs, bad_step: int, epoch: int = 0, restore_at_most: int | None = None, committed: int = 0, **spec: object) -> JobRun:
    """`committed`: saves that are committed before the step before `bad_step`."""
    environment = {} if restore_at_most is None else {ports.RESTORE_AT_MOST: str(restore_at_most)}
    return runs.start(SCRIPT, (str(bad_step), str(committed)), epoch, environment=environment, **spec)


def told(run: JobRun, rank: int) -> dict[str, Any]:
    """The rank's newest report."""
    found: list[Any] = [line[1] for line in run.lines(rank) if line[0] == "p"]
    return found[-1] if found else {}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def pid_of(run: JobRun, rank: int) -> int:
    record = read_json(run.paths.rank(rank).pid)
    assert record is not None
    return int(record["pid"])


def test_a_stopped_rank_falls_silent_while_its_peers_pulse_goes_on(runs: Runs) -> None:
    run = start(runs, bad_step=-1)
    until(lambda: all("fastest_work_time_ms" in told(run, r) for r in (0, 1)), told=run.stderr)
    begun = [line[1] for line in run.lines() if line[0] == "a"]
    assert begun and begun[0]["activity"] == "STARTING", "it lives before it trains"  # type: ignore[index]
    slow, fast = told(run, 1), told(run, 0)
    # Far enough apart that a busy machine does not make the fast one slow.
    assert slow["work_time_ms"] >= 150 > fast["work_time_ms"] >= 10 and slow["fastest_work_time_ms"] < 150
    os.kill(pid_of(run, 1), signal.SIGSTOP)
    stopped_ms = now_ms()
    # Rank 0 is stuck in a collective, and its session lives.
    until(lambda: told(run, 0)["pulse_at_ms"] > max(stopped_ms, told(run, 0)["step_at_ms"]) + 3_000, told=lambda: told(run, 0))
    silent, waits = told(run, 1), told(run, 0)
    assert silent["pulse_at_ms"] <= stopped_ms and waits["step"] <= silent["step"] + 200
    assert 0 < waits["step_time_p99_ms"] <= waits["longest_step_ms"] * 1.03
    os.kill(pid_of(run, 1), signal.SIGCONT)
    until(lambda: told(run, 0)["step"] > waits["step"] + 3 and told(run, 1)["pulse_at_ms"] > stopped_ms + 3_000)


def test_a_loss_that_is_no_number_ends_all_ranks_and_the_next_attempt_goes_on_before_it(runs: Runs) -> None:
    every = {"every_steps": 3, "keep_last": 1}
    run = start(runs, bad_step=7, committed=2, checkpoint=every)
    assert [run.exit_of(r).exit_code for r in (0, 1)] == [EXIT_DIVERGED, EXIT_DIVERGED], run.stderr(0) + run.stderr(1)
    for rank in (0, 1):
        (found,) = [line[2] for line in run.lines(rank) if line[0] == "e" and line[1] == "LossDiverged"]
        assert (found["rank"], found["loss"], found["good_commit"]) == (1, "nan", 2)  # type: ignore[index]
        assert "Traceback" not in run.stderr(rank) and "Stopped" not in run.stderr(rank), run.stderr(rank)
        assert 8 <= found["step"] <= 9 and "the loss diverged: nan on rank 1" in run.stderr(rank)  # type: ignore[index]
    saved = [(e[2]["commit"], e[2]["step"]) for e in run.events("CheckpointCompleted")]  # type: ignore[index, call-overload]
    assert saved == [(1, 3), (2, 6)], "the save of step 9 would have held the bad state"
    assert 7 in run.losses() and told(run, 0)["activity"] == "DONE"
    back = start(runs, bad_step=4, epoch=1, restore_at_most=1, checkpoint=every)
    assert [back.exit_of(r).exit_code for r in (0, 1)] == [EXIT_DIVERGED, EXIT_DIVERGED], back.stderr()
    assert back.events("CheckpointRestored")[0][2]["commit"] == 1  # type: ignore[index, call-overload]
