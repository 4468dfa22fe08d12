"""Scripts that use no session, on a whole real stack: when they are RUNNING, and what their failure looks like to a user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stack.test_cli_stack import wait_for_state
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

PLAIN = """\
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
while True:
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(0.1)
"""
RAISES = """\
import torch.distributed as dist
dist.init_process_group("gloo")
class NoCheckpointError(Exception): pass
def restore():
    raise NoCheckpointError("commit 4 of base is not there")
if dist.get_rank() == 0:
    restore()
dist.barrier()
"""


def test_a_plain_ddp_script_is_running_soon_after_its_ranks_began(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    job = stack.ok("submit", "--gang", "2", "--", "python", "plain.py", cwd=tmp_path).splitlines()[0]
    wait_for_state(stack, job, {"RUNNING"})
    query = (
        f"SELECT dateDiff('millisecond', minIf(at, state = 'INITIALIZING'), minIf(at, state = 'RUNNING')) AS ms "
        f"FROM job_status_history WHERE job_id = '{job}' HAVING countIf(state = 'RUNNING') > 0"
    )
    rows = until(lambda: stack.rows(query), lambda: stack.log("projector"))
    stack.ok("cancel", job)
    assert 0 < rows[0]["ms"] < 15_000, rows


TRACKS_NOTHING = """\
import time
from trainhouse.workers import Session
session = Session.start()
for step in session.steps(600):
    session.log(loss=1.0)
    time.sleep(0.1)
"""


@pytest.mark.parametrize(("script", "advice"), [(PLAIN, "no rank has opened a session"), (TRACKS_NOTHING, "session.track(")])
def test_a_job_that_asks_for_checkpoints_and_saves_none_is_warned_once(stack: LiveStack, tmp_path: Path, script: str, advice: str) -> None:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "spec.yaml").write_text("name: unsaved\nruntime: {command: [python, train.py]}\ncheckpoint: {every_s: 4}\n")
    job = stack.ok("submit", "spec.yaml", cwd=tmp_path).splitlines()[0]

    def warnings() -> list[str]:
        return [line for line in stack.ok("events", job).splitlines() if "checkpoint.skipped" in line]

    until(warnings, lambda: stack.ok("events", job) + stack.log("agent"))
    if script == TRACKS_NOTHING:
        until(lambda: advice in stack.run("logs", job, "--stream", "stderr").out, lambda: stack.run("logs", job).out)
    stack.ok("cancel", job)
    wait_for_state(stack, job, {"CANCELLED"})
    (only,) = warnings()
    assert "warning: " in only and advice in only, only


def test_the_reason_of_a_failed_job_is_one_line_and_its_traceback_is_in_the_logs_once(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text(RAISES)
    done = stack.run("submit", "--gang", "2", "--restarts", "0", "--wait", "--", "python", "raises.py", cwd=tmp_path)
    job = done.lines[0]
    reason = str(stack.status(job)["reason"])
    line = r"rank 0 on node \S+ exited with code 1 \(NoCheckpointError: commit 4 of base is not there\)\. Blamed on user code"
    assert re.match(line, reason) and "\n" not in reason, reason
    assert reason in done.lines[-1] and done.out.count("Traceback") == 1, done.out  # rank 0's own output, and no second one with the state
    assert sum(one.startswith("reason ") for one in stack.ok("status", job).splitlines()) == 1
    logs = until(lambda: (out := stack.run("logs", job, "--rank", "0").out).count("NoCheckpointError: ") and out, "the traceback")
    assert (logs.count("Traceback (most recent call last)"), logs.count("NoCheckpointError: commit 4")) == (1, 1), logs
