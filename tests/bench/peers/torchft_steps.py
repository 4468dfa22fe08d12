"""The same training under torchft, one rank a replica group: torchft_steps.py FOLDER STEP_S TIMEOUT_S. Runs in the peers' environment.

Writes what steps.py writes; START is the number of this start of the group, RANK is the group.
"""

import datetime
import os
import sys
import time
from pathlib import Path

import torch
from torchft import Manager, Optimizer, ProcessGroupGloo


def main() -> None:
    folder, step_s, timeout_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    group = os.environ["REPLICA_GROUP_ID"]
    start = f"{int(os.environ['TORCHELASTIC_RESTART_COUNT']):04d}"
    moments = (folder / f"{start}-{group}").open("a", buffering=1)
    moments.write(f"began {time.time():.6f} {os.getpid()}\n")
    torch.set_num_threads(1)
    inner = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    adam = torch.optim.AdamW(inner.parameters())

    def load(state: dict[str, dict[str, object]]) -> None:
        inner.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    timeout = datetime.timedelta(seconds=timeout_s)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=load,
        state_dict=lambda: {"model": inner.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=1,
        replica_id=f"steps-{group}",
        timeout=timeout,
    )
    optimizer = Optimizer(manager, adam)
    moments.write(f"joined {time.time():.6f}\n")
    while True:
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = inner(torch.randn(16, 256)).square().mean()
        loss.backward()
        # Not through its DistributedDataParallel: with torch 2.15 that ends with an AssertionError where a peer is gone.
        for work in [manager.allreduce(p.grad) for p in inner.parameters() if p.grad is not None]:
            work.wait()
        optimizer.step()
        time.sleep(max(0.0, begin + step_s - time.monotonic()))
        moments.write(f"step-{manager.current_step()}-{manager.num_participants()} {time.time():.6f}\n")


if __name__ == "__main__":
    main()
