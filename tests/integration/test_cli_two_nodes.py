"""More than one machine: two agents, started by settings alone, are two nodes of a pool, and one gang spans both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_agent import Agents, a_pool, agents
from tests.live_stack import LiveStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

SCRIPT = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"], int(total.item()), flush=True)
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack) -> str:
    """A pool of its own on the shared stack."""
    return a_pool(stack, "two", 1)


@pytest.fixture(scope="module")
def nodes(stack: LiveStack, pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """Two agents by environment alone, without the stack's file."""
    with agents(stack, pool, tmp_path_factory.mktemp("agents"), f"{pool}-a", f"{pool}-b") as found:
        yield found


def test_one_gang_across_two_nodes(stack: LiveStack, pool: str, nodes: Agents, tmp_path: Path) -> None:
    assert len(stack.run("nodes", "--json", "--pool", pool, "--state", "ALIVE").objects()) == 2
    (tmp_path / "sum.py").write_text(SCRIPT)
    done = stack.run("submit", "--pool", pool, "--gang", "4", "--wait", "--timeout", "4m", "--", "python", "sum.py", cwd=tmp_path)
    assert done.code == 0, done.out + nodes.told()
    job = done.lines[0]
    lines: set[str] = set()
    deadline = time.monotonic() + 60
    while len(lines) < 4 and time.monotonic() < deadline:
        lines = set(stack.run("logs", job).lines)
    ranks = {line.split("] ")[1] for line in lines}
    assert ranks == {"0 0 2 0 4", "1 1 2 0 4", "2 0 2 1 4", "3 1 2 1 4"}
    placed = stack.rows(f"SELECT uniqExact(node_id) AS nodes, uniqExact(device_id) AS devices FROM ranks WHERE job_id = '{job}'")
    assert placed == [{"nodes": 2, "devices": 4}]
