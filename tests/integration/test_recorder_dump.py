"""Two real ranks of gloo, one stuck in a collective, the other never coming to it: told to end, they say so by torch's flight recorder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from trainhouse.deploy.local.ports import free_port
from trainhouse.scheduler.core.blame.recorder import told
from trainhouse.workers.agent.recorder import words_of
from trainhouse.workers.launcher.ports import RankPaths

SCRIPT = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from trainhouse.workers.session import recorder

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: None)
dist.init_process_group("gloo", timeout=timedelta(seconds=300))
assert recorder.watch(folder / f"flight_recorder_{rank}", backend="gloo")
x = torch.ones(512)
dist.all_reduce(x)
dist.barrier()
(folder / f"ready-{rank}").touch()
if rank == 0:
    dist.all_reduce(x)
while True:
    time.sleep(60)
"""


@pytest.mark.timeout(290)
def test_a_stuck_rank_tells_where_it_is_when_it_is_told_to_end(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT)
    about = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=os.environ | about | {"RANK": str(r)}) for r in (0, 1)]
    paths = RankPaths(tmp_path)
    try:
        until(lambda: all((tmp_path / f"ready-{r}").exists() for r in (0, 1)), "both ranks are up", 200)

        def both_told() -> bool:
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
            found = told(words_of(paths.recorder(r), r) for r in (0, 1))
            return found is not None and found.absent == (1,)

        # Rank 0 is in the collective a moment after it says that it is ready.
        until(both_told, "the dumps say that rank 1 never came", 60)
        assert all(rank.poll() is None for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found = told(words_of(paths.recorder(r), r) for r in (0, 1))
    assert found is not None
    assert "collective 3" in found.sentence and "rank 0 waits for rank 1" in found.sentence and "all_reduce" in found.sentence
