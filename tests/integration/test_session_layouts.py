"""Sessions of sharded and pipelined gangs: killed and resumed bit for bit, and restored into another layout and number of ranks."""

import json
import signal

import pytest

from tests.integration.session_support import JobRun, Runs

pytestmark = pytest.mark.stack

TRAIN = """
import hashlib, json, os, signal, sys
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleGPipe
from trainhouse.workers import Session

session = Session.start()
layout, total, dying = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = [f"layer{n}" for n in range(4)]
model = nn.Sequential()
for n, name in enumerate(names):
    model.add_module(name, nn.Linear(6 if n == 0 else 7, 7))
if layout == "fsdp":
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cpu", (session.world_size,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (session.world_size,)))
else:
    each = len(names) // session.world_size
    for n, name in enumerate(names):
        if n // each != session.rank:
            delattr(model, name)
    stage = PipelineStage(model, session.rank, session.world_size, session.device)
    pipeline = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)


def tell(when):
    moments = {f"{name}.{key}": value for name, p in model.named_parameters() for key, value in optimizer.state.get(p, {}).items()}
    wholes = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in (model.state_dict() | moments).items()}
    print(json.dumps({when: {name: hashlib.sha256(t.detach().numpy().tobytes()).hexdigest() for name, t in wholes.items()}}), flush=True)


session.track(model=model, optimizer=optimizer, schedule=schedule)
tell("begin")
for step in session.steps(total, save_every_steps=2):
    x = torch.randn(8, 6)
    target = x.sum(1, keepdim=True).expand(8, 7)
    if layout == "fsdp":
        nn.functional.mse_loss(model(x), target).backward()
    else:
        last = session.rank == session.world_size - 1
        pipeline.step(*([x] if session.rank == 0 else []), **({"target": target} if last else {}))
    if step == 5 and session.rank == dying:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
tell("end")
"""
DYING, NONE = "1", "-1"


def told(run: JobRun, ranks: int, when: str) -> dict[str, str]:
    """Hashes of all weights and moments that the ranks hold together, by name."""
    assert [run.exit_of(rank).exit_code for rank in range(ranks)] == [0] * ranks, [run.stderr(rank) for rank in range(ranks)]
    found: dict[str, str] = {}
    for rank in range(ranks):
        (hashes,) = [line[when] for line in map(json.loads, run.stdout(rank).splitlines()) if when in line]
        assert all(found.setdefault(name, value) == value for name, value in hashes.items())
    return found


@pytest.mark.parametrize(("layout", "other", "ranks"), [("fsdp", "fsdp", 4), ("pp", "fsdp", 2), ("fsdp", "pp", 4)])
def test_a_killed_gang_goes_on_bit_for_bit_and_restores_in_another_layout(runs: Runs, layout: str, other: str, ranks: int) -> None:
    straight = told(runs.start(TRAIN, (layout, "8", NONE), name="straight"), 2, "end")
    killed = runs.start(TRAIN, (layout, "8", DYING))
    assert killed.exit_of(int(DYING)).signal == signal.SIGKILL
    killed.close()
    second = runs.start(TRAIN, (layout, "8", NONE), epoch=1)
    assert told(second, 2, "end") == straight
    restored = second.events("CheckpointRestored")[0][2]["step"]  # type: ignore[index, call-overload]
    assert restored in (2, 4), "the kill may come before the commit of step 4, which goes on beside training"
    assert len(straight) == 4 * 2 * 4, "weights and biases of four layers, each with two moments and a count"
    third = runs.start(TRAIN, (other, "10", NONE), epoch=2, ranks=ranks)
    assert told(third, ranks, "begin") == straight
    assert told(third, ranks, "end") != straight
