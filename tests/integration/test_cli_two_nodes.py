"""More than one machine: two agents, started by settings alone, are two nodes of a pool, and one gang spans both."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_stack import LiveStack
from trainhouse.client.client import now_ms
from trainhouse.deploy.local.client_config import exports
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.server import die_with_parent
from trainhouse.events import PoolCreated, envelope_of
from trainhouse.events.kafka import EventProducer
from trainhouse.events.topics import JOBS

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
STARTS_S = 180

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
    name = f"two-{secrets.token_hex(4)}"
    producer = EventProducer(stack.client().kafka)
    event = PoolCreated.model_validate({"pool": name, "partition": 1})
    producer.send(JOBS, envelope_of(event, id=f"pool:{name}", source="test", now_ms=now_ms()))
    producer.flush()
    return name


@pytest.fixture(scope="module")
def agents(stack: LiveStack, pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two agents by environment alone, without the stack's file; stopped by pid at the end."""
    settings = exports(StackFolder(stack.data_dir))
    environment = {k: v for k, v in stack.environment.items() if not k.startswith("TRAINHOUSE_")}
    environment |= {k: v for k, v in settings.items() if k not in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR")}
    processes, logs = [], []
    for name in ("a", "b"):
        folder = tmp_path_factory.mktemp(f"agent-{name}")
        own = {"POOL": pool, "NODE_ID": f"{pool}-{name}", "DIR": str(folder / "agent"), "SLOTS": "2", "ACCELERATORS": "none"}
        logs.append(folder / "agent.log")
        with logs[-1].open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "trainhouse.cli.main", "run", "agent"],
                    env=environment | {f"TRAINHOUSE_AGENT_{k}": v for k, v in own.items()},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent(),
                )
            )
    yield logs
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        assert process.wait(60) == 0, [log.read_text()[-3000:] for log in logs]


def test_one_gang_across_two_nodes(stack: LiveStack, pool: str, agents: list[Path], tmp_path: Path) -> None:
    deadline = time.monotonic() + STARTS_S
    while len(stack.run("nodes", "--json", "--pool", pool, "--state", "ALIVE").objects()) < 2:
        assert time.monotonic() < deadline, [log.read_text()[-3000:] for log in agents]
        time.sleep(1)
    (tmp_path / "sum.py").write_text(SCRIPT)
    done = stack.run("submit", "--pool", pool, "--gang", "4", "--wait", "--timeout", "4m", "--", "python", "sum.py", cwd=tmp_path)
    assert done.code == 0, done.out + "".join(log.read_text()[-3000:] for log in agents)
    job = done.lines[0]
    lines: set[str] = set()
    deadline = time.monotonic() + 60
    while len(lines) < 4 and time.monotonic() < deadline:
        lines = set(stack.run("logs", job).lines)
    ranks = {line.split("] ")[1] for line in lines}
    assert ranks == {"0 0 2 0 4", "1 1 2 0 4", "2 0 2 1 4", "3 1 2 1 4"}
    placed = stack.rows(f"SELECT uniqExact(node_id) AS nodes, uniqExact(device_id) AS devices FROM ranks WHERE job_id = '{job}'")
    assert placed == [{"nodes": 2, "devices": 4}]
