"""A DDP program that restarts from its own checkpoint file: steps.py FOLDER STEP_S TIMEOUT_S, under torchrun or Trainhouse alike.

Each rank appends `MOMENT TIME` lines to FOLDER/START-RANK, START being the number of this start of the gang: began, joined, restored, then
a line for each step. Rank 0 saves every tenth step.
"""

import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trainhouse.workers import Session

SAVE_EVERY = 10


def main() -> None:
    folder, step_s, timeout_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    start = f"{int(os.environ['TORCHELASTIC_RESTART_COUNT']):04d}"
    moments = (folder / f"{start}-{os.environ['RANK']}").open("a", buffering=1)
    moments.write(f"began {time.time():.6f} {os.getpid()}\n")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout_s))
    session = Session.start()
    moments.write(f"joined {time.time():.6f}\n")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)))
    optimizer = torch.optim.AdamW(model.parameters())
    saved = folder / "checkpoint.pt"
    done = 0
    if saved.exists():
        state = torch.load(saved)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = int(state["step"])
    moments.write(f"restored {time.time():.6f}\n")
    for _ in session.steps():
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = model(torch.randn(16, 256)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(max(0.0, begin + step_s - time.monotonic()))
        done += 1
        moments.write(f"step-{done} {time.time():.6f}\n")
        if done % SAVE_EVERY == 0 and session.rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, folder / "checkpoint.new")
            os.replace(folder / "checkpoint.new", saved)


if __name__ == "__main__":
    main()
