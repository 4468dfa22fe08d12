"""A pool of a running job is moved again and again while the schedulers on both sides are killed: the job goes on, and nothing is lost.

On the stack for faults: its pool, its two nodes, and a standby scheduler beside the one that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from random import Random

import pytest

from tests.chaos.stack import ChaosStack
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.chaos]
SEED, MOVES = 7, (1, 2, 0)
COUNTS = "import time\nfor n in range(36000): print(f'line {n}', flush=True); time.sleep(0.1)"


def begun(stack: ChaosStack, job: str) -> bool:
    status = stack.statuses().get(job)
    return status is not None and status.state in ("INITIALIZING", "RUNNING")


def submitted(stack: ChaosStack, *more: str) -> str:
    return stack.live.ok("submit", "--no-code", *more, "--", "python", "-c", COUNTS).strip()


def moved_under_fire(stack: ChaosStack, to: int, rng: Random) -> None:
    """The command is under way when a scheduler is killed, and must be answered all the same."""
    line = [sys.executable, "-m", "trainhouse.cli.main", "pool", "move", "default", "--to", str(to), "--timeout", "480", "--json"]
    asked = subprocess.Popen(line, env=stack.live.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killed = 0
    while asked.poll() is None:
        time.sleep(rng.uniform(0.3, 1.2))
        pid = stack.pid(("scheduler", "standby")[killed % 2])
        if pid is not None and killed < 4:
            os.kill(pid, signal.SIGKILL)
            killed += 1
    told = asked.communicate()[0]
    assert asked.returncode == 0 and json.loads(told)["partition"] == to and killed, told


def test_a_pool_moves_while_its_schedulers_are_killed(two_nodes: ChaosStack) -> None:
    stack, rng = two_nodes, Random(SEED)
    job = submitted(stack)
    until(lambda: begun(stack, job))
    before = stack.statuses()[job]
    total = json.loads(stack.live.ok("pool", "show", "default", "--json"))["devices"]["cpu"]["total"]
    waiting = submitted(stack, "--gang", str(total))  # until the first one ends
    # No two alike: a change to what a job has already is answered "was not changed".
    priorities = rng.sample(range(1, 50), len(MOVES))
    for to, priority in zip(MOVES, priorities, strict=True):
        moved_under_fire(stack, to, rng)
        # Right behind the move, and by way of the partition on which the pool was created.
        told = json.loads(stack.live.ok("change", waiting, "--priority", str(priority), "--timeout", "480", "--json"))
        assert told["priority"] == priority
    now = stack.statuses()[job]
    assert begun(stack, job) and (now.attempt, now.epoch) == (before.attempt, before.epoch), "the attempt that ran before goes on"
    stack.live.ok("cancel", waiting, "--wait")
    late = submitted(stack)
    until(lambda: begun(stack, late))
    for each in (job, late):
        stack.live.ok("cancel", each, "--wait")
    until(lambda: {stack.statuses()[j].state for j in (job, waiting, late)} == {"CANCELLED"})
    done = stack.live.run("replay", "--verify", "--json")
    assert done.code == 0, done.out + done.err
