"""Help for the launcher's tests: an attempt in a temporary folder, and waiting by condition."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import trainhouse.workers
from tests.support.waiting import until
from trainhouse.workers.launcher import (
    AttemptPaths,
    ExitRecord,
    RankLaunch,
    StoreSocket,
    kill_tree,
    read_exit,
    start_time_environment,
)

T = TypeVar("T")

TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.ones(2, 4) * (dist.get_rank() + 1)).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step == 0:
        print("FIRST", time.time(), flush=True)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "weight", model.module.weight.sum().item())
dist.destroy_process_group()
"""
# A plain end of the interpreter aborts a rank whose gloo worker is late, once in many times and under any launcher.
# By its path, since a session imports torch, which a process that only starts ranks does without.
EXIT_GUARD = str(Path(trainhouse.workers.__file__).parent / "session" / "process" / "exit_guard.py")
TRAIN += f"import runpy; runpy.run_path({EXIT_GUARD!r})['wait_until_let_go']()\n"


class Attempt:
    """One attempt on this node, with its listening socket."""

    def __init__(self, folder: Path, script: str = "", ranks: int = 1) -> None:
        self.paths = AttemptPaths(folder)
        if script or not self.paths.folder.exists():
            self.paths.code.mkdir(parents=True)
            (self.paths.code / "train.py").write_text(script)
        self.ranks = ranks
        self.listener = socket.create_server(("127.0.0.1", 0))

    def launches(
        self,
        command: tuple[str, ...] = ("python", "train.py"),
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> list[RankLaunch]:
        return [
            RankLaunch(r, self.paths.rank(r).folder, command, self._env(r) | dict(env or {}), self.paths.code, secrets or {})
            for r in range(self.ranks)
        ]

    def _env(self, rank: int) -> dict[str, str]:
        return start_time_environment(os.environ) | {
            "PATH": os.environ["PATH"],
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.listener.getsockname()[1]),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
        }

    @property
    def store(self) -> StoreSocket:
        return StoreSocket(self.listener.fileno(), "127.0.0.1", self.listener.getsockname()[1], self.ranks)

    def exit_of(self, rank: int = 0, timeout_s: float = 150.0) -> ExitRecord:
        return until(lambda: read_exit(self.paths.rank(rank)), timeout_s=timeout_s)

    def stdout(self, rank: int = 0) -> str:
        return self.paths.rank(rank).stdout.read_text()

    def stderr(self, rank: int = 0) -> str:
        return self.paths.rank(rank).stderr.read_text()

    def close(self) -> None:
        kill_tree(self.paths)
        self.listener.close()
