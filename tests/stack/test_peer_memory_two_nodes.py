"""A gang of FSDP2 over two nodes: each node's chunks are in the other's memory, and a restart reads them from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.stack.live_agent import a_pool, agents
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

SCRIPT = """\
import hashlib, os, signal
import torch
from torch.distributed.fsdp import fully_shard
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
begun = session.track(model=model, optimizer=optimizer)
print("begins at", begun, flush=True)
for step in session.steps(12, save_every_steps=4):
    loss = (model(torch.randn(8, 256)) - 1).square().mean()
    if step == 9 and begun == 0 and session.rank == 3:  # the save of step 8 has waited for the commit of step 4
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
weights = b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters())
print("weights sha256", hashlib.sha256(weights).hexdigest(), flush=True)
"""


def trained(stack: LiveStack, pool: str, folder: Path, *more: str) -> list[str]:
    """Runs the script on four ranks to its end: what they wrote."""
    (folder / "train.py").write_text(SCRIPT)
    settings = ("--pool", pool, "--gang", "4", "--seed", "5", "--wait", "--timeout", "15m", *more)
    done = stack.run("submit", *settings, "--", "python", "train.py", cwd=folder)
    assert done.code == 0, done.out
    job = done.lines[0]

    def whole() -> list[str] | None:
        lines = stack.run("logs", job).lines
        return lines if sum("weights sha256" in line for line in lines) == 4 else None

    return until(whole, "the logs of four ranks")


def test_a_restarted_gang_reads_its_chunks_from_the_other_node(stack: LiveStack, tmp_path: Path) -> None:
    pool = a_pool(stack, "held", 2)
    with agents(stack, pool, tmp_path, f"{pool}-a", f"{pool}-b", PEER_MEMORY_GIB="0.0625") as nodes:
        lines = trained(stack, pool, tmp_path)
        assert sum("begins at 4" in line or "begins at 8" in line for line in lines) == 4, nodes.told()
        read = {found[1] for found in (re.search(r"MiB of the checkpoint came from the memory of (\S+)", line) for line in lines) if found}
        assert read == set(nodes.node_ids), "\n".join(lines) + nodes.told()
        assert not any("the store gave what" in line for line in lines), "\n".join(lines)
        weights = {line.split("weights sha256 ")[1].strip() for line in lines if "weights sha256" in line}
        assert len(weights) == 1
