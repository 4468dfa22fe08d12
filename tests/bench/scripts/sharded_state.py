"""An FSDP2 model with an AdamW state over the two ranks of a bench."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

WIDTH = 1024
BYTES_A_LAYER = 12 * (WIDTH * WIDTH + WIDTH)  # weights and two moments


def joined(rank: int, port: str, layers: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer after one step, once this process is in the group. Blocks until both ranks are."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, WIDTH)).sum().backward()
    optimizer.step()
    return model, optimizer
