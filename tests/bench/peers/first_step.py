"""An unmodified torchrun-style script: one DDP step of two ranks, then the moment of rank 0's first step on standard output."""

import datetime
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)))
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(torch.randn(16, 64)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"FIRST_STEP {time.time():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
