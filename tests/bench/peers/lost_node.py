"""A sharded program that is saved once and goes on: lost_node.py FOLDER STATE_MB, under Trainhouse.

Each rank appends `MOMENT TIME` lines to FOLDER/START-RANK, START being the number of this start of the gang: began, imported, joined,
built, restored, then a line for each step; behind these, of the first step, the seconds of processor time that the rank has taken so far.
"""

import os
import sys
import time
from pathlib import Path

STARTED_S = time.time()

import torch  # noqa: E402  (what comes before it is measured)
from torch.distributed.fsdp import fully_shard  # noqa: E402

from trainhouse.workers import Session  # noqa: E402

WIDTH, SAVE_AT = 2048, 3
BYTES_A_LAYER = 12 * WIDTH * WIDTH


def main() -> None:
    folder, layers = Path(sys.argv[1]), max(1, int(sys.argv[2]) * 1_000_000 // BYTES_A_LAYER)
    start = f"{int(os.environ['TORCHELASTIC_RESTART_COUNT']):04d}"
    moments = (folder / f"{start}-{os.environ['RANK']}").open("a", buffering=1)
    moments.write(f"began {STARTED_S:.6f} {os.getpid()}\n")
    moments.write(f"imported {time.time():.6f}\n")
    torch.set_num_threads(1)
    session = Session.start()
    moments.write(f"joined {time.time():.6f}\n")
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    moments.write(f"built {time.time():.6f}\n")
    begun = session.track(model=model, optimizer=optimizer)
    if begun == 0:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter.to_local(), std=WIDTH**-0.5)  # type: ignore[attr-defined]
    moments.write(f"restored {time.time():.6f}\n")
    for step in session.steps():
        optimizer.zero_grad()
        model(torch.randn(2, WIDTH)).square().mean().backward()
        optimizer.step()
        moments.write(f"step-{step} {time.time():.6f} {time.process_time():.3f}\n")
        if begun == 0 and step == SAVE_AT:
            session.save()


if __name__ == "__main__":
    main()
