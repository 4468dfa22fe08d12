"""One whole stack from end to end, with kills on the way: what `make test` runs of all that whole stacks are tested for."""

from __future__ import annotations

import json
import os
import secrets
import signal
from pathlib import Path

import pytest

from tests.chaos.drive import Training
from tests.integration.own_stack import SLOTS, OwnStack
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, TUNING

pytestmark = pytest.mark.stack
STEPS, SAVED, HELD = 20, 5, 12
# The first attempt stands still at a step that no checkpoint has, until it is killed.
SCRIPT = f"""
import time, torch
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = session.track(model=model, optimizer=optimizer)
print("begins at", begun, flush=True)
for step in session.steps({STEPS}):
    loss = model(torch.ones(4)).square().sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss)
    if begun == 0 and step == {HELD}:
        time.sleep(3600)
"""


def test_a_job_ends_well_though_a_rank_and_the_scheduler_are_killed(own_stack: OwnStack, tmp_path: Path) -> None:
    if not own_stack.runs():
        own_stack.up()
    stack = LiveStack(own_stack.data_dir, SLOTS)
    # A test before this one may have had the projector started again.
    until(lambda: stack.run("sql", "SELECT 1").code == 0, lambda: stack.ok("ps"))
    attempts = Path(read_toml(stack.data_dir / "trainhouse.toml")["agent"]["dir"]) / "attempts"
    job, script = f"journey-{secrets.token_hex(3)}", tmp_path / "train.py"
    script.write_text(SCRIPT)
    stack.ok("submit", "--id", job, "--gang", "2", "--every-steps", str(SAVED), "--", "python", "train.py", cwd=tmp_path)
    training = Training((attempts,), job)
    until(lambda: training.step() == HELD, lambda: stack.ok("events", job))
    saved = f"SELECT max(step) AS step FROM checkpoints WHERE job_id = '{job}'"
    until(lambda: stack.rows(saved)[0]["step"] == 2 * SAVED, lambda: stack.ok("events", job))

    os.kill(stack.part("scheduler").pid, signal.SIGKILL)
    for rank in training.rank_pids():  # one that were left would save the step that it stands at
        os.kill(rank, signal.SIGKILL)
    ended = f"SELECT state, attempt FROM jobs WHERE job_id = '{job}'"
    until(lambda: stack.rows(ended) == [{"state": "SUCCEEDED", "attempt": 1}], lambda: stack.ok("events", job))

    goes_on = f"begins at {2 * SAVED}"
    until(lambda: goes_on in stack.run("logs", job).out, lambda: stack.run("logs", job).out)
    curve = (
        f"SELECT step, uniqExact(epoch) AS epochs FROM step_metrics WHERE job_id = '{job}' AND metric = 'loss' GROUP BY step ORDER BY step"
    )
    again = range(2 * SAVED, HELD + 1)
    whole = [{"step": step, "epochs": 1 + (step in again)} for step in range(STEPS)]
    until(lambda: stack.rows(curve) == whole, lambda: stack.rows(curve))
    told = [json.loads(line) for line in stack.run("replay", "--verify", "--json").lines]
    assert {row["topic"]: row["same"] for row in told} == {DECISIONS: True, DIRECTORY: True, REGISTRY: True, TUNING: True}, told
