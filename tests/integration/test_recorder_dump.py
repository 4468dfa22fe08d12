"""Two real ranks of gloo, one stuck in a collective, the other never coming to it: told to end, they say so by torch's flight recorder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.scheduler.core.blame.flight_recorder import RecorderFinding, recorder_finding
from trainhouse.workers.agent.debug.recorder_dumps import words_of
from trainhouse.workers.launcher.ports import RankPaths

SCRIPT = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from trainhouse.workers.session.process import recorder

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


def test_a_stuck_rank_tells_where_it_is_when_it_is_told_to_end(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(SCRIPT)
    about = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    outputs = [tmp_path / f"output-{r}" for r in (0, 1)]
    ranks = [started(script, about | {"RANK": str(r)}, output) for r, output in enumerate(outputs)]
    paths = RankPaths(tmp_path)

    def state() -> str:
        return "\n".join(f"rank {r} ({ranks[r].poll()}): {words_of(paths.recorder(r), r)}\n{outputs[r].read_text()}" for r in (0, 1))

    def both_told() -> RecorderFinding | None:
        """What the two dumps say together: rank 0 enters its last collective a moment after it says that it is ready, and a dump
        of that moment has the one before, which rank 1 has done too."""
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        words = [words_of(paths.recorder(r), r) for r in (0, 1)]
        found = recorder_finding(words)
        return found if all(words) and found is not None and found.absent == (1,) else None

    try:
        until(lambda: all((tmp_path / f"ready-{r}").exists() for r in (0, 1)), lambda: f"both ranks are up; {state()}", 200)
        found = until(both_told, lambda: f"the dumps say that rank 1 never came; {state()}")
        assert all(rank.poll() is None for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert "collective 3" in found.sentence and "rank 0 waits for rank 1" in found.sentence and "all_reduce" in found.sentence


def started(script: Path, environment: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as written:
        return subprocess.Popen([sys.executable, str(script), str(script.parent)], env=environment, stdout=written, stderr=written)
