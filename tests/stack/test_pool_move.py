"""A pool is moved while a job of it trains: the job goes on, and what is asked of it and its node afterwards counts as before."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack
COUNTS = "import time\nfor n in range(36000): print(f'line {n}', flush=True); time.sleep(0.1)"


def status(stack: LiveStack, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.ok("status", job, "--json"))
    return found


def running(stack: LiveStack, job: str, attempt: int = 0) -> bool:
    now = status(stack, job)
    return (now["state"], now["attempt"]) in (("RUNNING", attempt), ("INITIALIZING", attempt))


def submitted(stack: LiveStack, pool: str, *more: str) -> str:
    return stack.ok("submit", "--pool", pool, "--no-code", *more, "--", "python", "-c", COUNTS).strip()


def test_a_pool_moves_there_and_back_while_a_job_trains(stack: LiveStack, tmp_path: Path) -> None:
    pool = f"moves-{secrets.token_hex(3)}"
    first = json.loads(stack.ok("pool", "create", pool, "--json"))["partition"]
    other = (first + 1) % 4
    node = f"{pool}-n1"
    with agents(stack, pool, tmp_path, node, WARM_START="false") as made:
        job, waiting = submitted(stack, pool), submitted(stack, pool, "--gang", "2")
        until(lambda: running(stack, job), made.told)
        told = stack.ok("pool", "move", pool, "--to", str(other), "--reason", "room")
        assert told == f"pool {pool} was moved from partition {first} to {other}\n"
        assert "already" in stack.ok("pool", "move", pool, "--to", str(other))
        # By way of the former partition, to which the directory sends: answers are those of the new one.
        assert json.loads(stack.ok("change", waiting, "--priority", "7", "--json"))["priority"] == 7
        until(lambda: f'"partition": {other}' in made.told() and "reports go to the pool's partition" in made.told(), made.told)
        assert f"node {node} of pool {pool} is CORDONED: fan" in stack.ok("node", "cordon", node, "--reason", "fan")
        stack.ok("node", "uncordon", node)
        assert running(stack, job), "the attempt that ran before goes on"
        stack.ok("cancel", job, "--wait")
        until(lambda: running(stack, waiting), made.told)

        told = stack.ok("pool", "move", pool, "--to", str(first), "--json")
        assert json.loads(told) == {"pool": pool, "partition": first, "from_partition": other, "moved": True}
        third = submitted(stack, pool)
        stack.ok("cancel", waiting, "--wait")
        until(lambda: running(stack, third), made.told)
        stack.ok("cancel", third, "--wait")
        until(lambda: stack.rows(f"SELECT partition FROM pools WHERE pool = '{pool}'") == [{"partition": first}])
    refused = stack.run("pool", "move", pool, "--to", "99")
    assert refused.code == 3 and "use 0 to 3, or add some: `trainhouse topics grow`" in refused.err
    assert stack.run("pool", "move", f"{pool}x", "--to", "0").code == 66
    shown = stack.rows(f"SELECT json FROM decisions WHERE pool = '{pool}' AND type = 'trainhouse.pool.part.v1'")
    assert len(shown) == 2 and all('"data"' not in row["json"] for row in shown)
    for each in (job, waiting, third):
        history = stack.rows(f"SELECT state FROM job_status_history WHERE job_id = '{each}' ORDER BY status_seq")
        states = [row["state"] for row in history]
        assert states[0] == "PENDING" and states[-1] == "CANCELLED" and states.count("CANCELLED") == 1, (each, states)
    done = stack.run("replay", "--verify", "--json")
    assert done.code == 0, done.out + done.err
