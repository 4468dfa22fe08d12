"""A gang over two nodes of which ranks die: one that is left saves the last finished step for all of them.

Ranks draw numbers of their own, so that an own state that is not exactly the one of its step shows in the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack.live_agent import Agents, two_nodes
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

SCRIPT = """\
import hashlib, os, random, signal, sys, time
from pathlib import Path
import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
begun = session.track(model=wrapped, optimizer=optimizer, schedule=schedule)
print("begins at", begun, flush=True)
doomed = [int(r) for r in sys.argv[1].split(",") if r] if begun == 0 else []
folder = Path("doomed")
folder.mkdir(exist_ok=True)
for step in session.steps(14):
    time.sleep(0.2)  # nine of them are older than what is too young to be saved again
    noise = random.random() + float(np.random.rand())
    loss = (wrapped(torch.randn(8, 4) + session.rank) - noise).square().mean()
    if step == 9 and session.rank in doomed:
        (folder / f"{session.rank}").touch()
        while len(list(folder.iterdir())) < len(doomed):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); schedule.step()
    session.log(loss=loss)
print("weights sha256", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest(), flush=True)
"""


@pytest.fixture(scope="module")
def nodes(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with two_nodes(stack, "left", 2, tmp_path_factory.mktemp("agents")) as found:
        yield found


def trained(stack: LiveStack, nodes: Agents, folder: Path, doomed: str) -> tuple[str, str, list[str]]:
    """Runs the script on four ranks to its end: the job, its weights, and what its ranks wrote."""
    (folder / "train.py").write_text(SCRIPT)
    settings = ("--pool", nodes.pool, "--gang", "4", "--every-steps", "1000", "--seed", "5", "--wait", "--timeout", "15m")
    done = stack.run("submit", *settings, "--", "python", "train.py", doomed, cwd=folder)
    assert done.code == 0, done.out + nodes.told()
    job = done.lines[0]

    def whole() -> list[str] | None:
        lines = stack.run("logs", job).lines
        return lines if sum("weights sha256" in line for line in lines) == 4 else None

    lines: list[str] = until(whole, nodes.told)
    weights = {line.split("weights sha256 ")[1].strip() for line in lines if "weights sha256" in line}
    assert len(weights) == 1
    return job, weights.pop(), lines


def test_no_step_is_lost_with_ranks_on_another_node(stack: LiveStack, nodes: Agents, tmp_path: Path) -> None:
    _, calm, _ = trained(stack, nodes, tmp_path, "")
    job, weights, lines = trained(stack, nodes, tmp_path, "3")  # its node's other rank is left
    assert any("saved step 9 for all" in line for line in lines), "\n".join(lines) + nodes.told()
    assert sum("begins at 9" in line for line in lines) == 4
    assert weights == calm
    _, weights, lines = trained(stack, nodes, tmp_path, "0,1")  # a node without a rank left: its agent tells what they had
    assert any("saved step 9 for all" in line for line in lines), "\n".join(lines) + nodes.told()
    assert weights == calm
    (failure,) = stack.rows(f"SELECT * FROM failures WHERE job_id = '{job}'")
    assert failure["lost_steps"] == 0, failure
