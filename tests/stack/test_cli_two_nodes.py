"""More than one machine: two agents, started by settings alone, are two nodes of a pool, and one gang spans both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack.live_agent import Agents, two_nodes
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

SCRIPT = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"], int(total.item()), flush=True)
"""


@pytest.fixture(scope="module")
def nodes(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """Two agents by environment alone, without the stack's file."""
    with two_nodes(stack, "two", 1, tmp_path_factory.mktemp("agents")) as found:
        yield found


def test_one_gang_across_two_nodes(stack: LiveStack, nodes: Agents, tmp_path: Path) -> None:
    assert len(stack.run("nodes", "--json", "--pool", nodes.pool, "--state", "ALIVE").objects()) == 2
    (tmp_path / "sum.py").write_text(SCRIPT)
    done = stack.run("submit", "--pool", nodes.pool, "--gang", "4", "--wait", "--timeout", "15m", "--", "python", "sum.py", cwd=tmp_path)
    assert done.code == 0, done.out + nodes.told()
    job = done.lines[0]
    lines: set[str] = until(lambda: len(found := set(stack.run("logs", job).lines)) >= 4 and found, lambda: stack.run("logs", job).out)
    ranks = {line.split("] ")[1] for line in lines}
    assert ranks == {"0 0 2 0 4", "1 1 2 0 4", "2 0 2 1 4", "3 1 2 1 4"}
    placed = f"SELECT uniqExact(node_id) AS nodes, uniqExact(device_id) AS devices FROM ranks WHERE job_id = '{job}'"
    until(lambda: stack.rows(placed) == [{"nodes": 2, "devices": 4}], lambda: stack.rows(placed))
