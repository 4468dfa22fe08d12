"""A program as torchrun starts them: no session, no checkpoint; it prints where it is, and begins anew when it is restarted."""

import os
import sys
import time

import torch
import torch.distributed as dist

STEPS, PAUSE_S = int(sys.argv[1]), 0.05


def main() -> None:
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    for step in range(STEPS):
        part = torch.ones(1)
        dist.all_reduce(part)
        total += part
        print(f"step {step}", flush=True)
        time.sleep(PAUSE_S)
    assert total.item() == STEPS * dist.get_world_size()
    print(f"rank {os.environ['RANK']} is done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
