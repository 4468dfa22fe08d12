"""Real ranks of which one dies: those that are left save the last finished step, and the next attempt goes on from there, bit for bit."""

import pytest

from tests.integration.session_support import JobRun, Runs
from tests.support.waiting import until
from trainhouse.workers.launcher import attempt_alive

pytestmark = pytest.mark.stack

# Every rank draws numbers of its own, so that an own state that is not exactly the one of its step shows in the weights.
SCRIPT = """
import hashlib, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session
from trainhouse.workers.own_states import read_left

session = Session.start()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
session.track(model=wrapped, optimizer=optimizer, schedule=schedule)
die, when = int(sys.argv[1]), sys.argv[2]
for step in session.steps(16):
    time.sleep(0.2)
    noise = random.random() + float(np.random.rand())
    loss = (wrapped(torch.randn(8, 4) + session.rank) - noise).square().mean()
    if step == die and session.rank == 1 and when == "before":
        while read_left(1, Path(os.environ["TRAINHOUSE_RANK_DIR"])).at(step) is None:
            time.sleep(0.01)  # what it has of its own is kept beside training
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); schedule.step()
    if step == die and session.rank == 1 and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    session.log(loss=loss)
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
print("weights sha256", weights)
"""
NEVER = "1000"


def start(runs: Runs, job: str, epoch: int, die: str = NEVER, when: str = "before") -> JobRun:
    return runs.start(SCRIPT, (die, when), epoch, name=job, seed=5, checkpoint={"every_s": 600.0})


def ended(run: JobRun) -> JobRun:
    """The run once both ranks are gone, whatever became of them."""
    run.exit_of(0)
    run.exit_of(1)
    until(lambda: not attempt_alive(run.paths))
    return run


def test_no_step_is_lost_with_a_rank_and_training_ends_as_if_nothing_had_been(runs: Runs) -> None:
    calm = start(runs, "calm", 1)
    broken = ended(start(runs, "broken", 1, die="9"))
    assert broken.exit_of(0).exit_code == 1
    assert "rank 0 saved step 9 for all" in broken.stderr(0), broken.stderr(0)
    assert broken.events("CheckpointCompleted")[-1][2]["step"] == 9  # type: ignore[index]
    again = ended(start(runs, "broken", 2))
    assert again.exit_of(0).clean, again.stderr(0)
    assert again.events("CheckpointRestored")[0][2]["step"] == 9  # type: ignore[index]
    assert again.weights() == ended(calm).weights()


def test_what_cannot_be_saved_exactly_is_not_saved(runs: Runs) -> None:
    """The dead rank had not finished the step that its peer had: what it would have drawn next is not known."""
    broken = ended(start(runs, "late", 1, die="9", when="after"))
    assert broken.exit_of(0).exit_code == 1
    assert "rank 1 is gone, and what it had of its own at step 10 was not kept" in broken.stderr(0), broken.stderr(0)
    assert not broken.events("CheckpointCompleted")
