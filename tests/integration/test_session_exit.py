"""The end of a rank whose work is done while a thread of torch is not: its exit code is the program's, never a SIGABRT."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainhouse.deploy.local.free_ports import free_ports

LATE = """
import os, sys, threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

session = Session.start()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in session.steps(2):
    model(torch.ones(2, 4)).sum().backward()

finished = threading.Event()

def late(future):  # torch calls it in the worker: the collective has its result, the worker has not let go of it
    finished.set()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        pass

if session.rank == 0:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
work = dist.all_reduce(torch.ones(4), async_op=True)
if session.rank == 1:
    work.get_future().then(late)
    open(sys.argv[1], "w").close()
    finished.wait()
else:
    work.wait()
dist.destroy_process_group()
print("done", flush=True)
sys.exit(3 * session.rank)
"""


def test_a_worker_that_is_late_does_not_abort_a_rank_that_is_done(tmp_path: Path) -> None:
    program = tmp_path / "late.py"
    program.write_text(LATE)
    gang = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(tmp_path / "listening")],
            env=os.environ | gang | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert ([rank.returncode for rank in ranks], [out for out, _ in said]) == ([0, 3], ["done\n"] * 2), said
