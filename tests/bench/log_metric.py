"""What one logged metric costs the training process; each point survives a SIGKILL right after its call (its write is done)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tests.bench.peers import environment

CALLS = 200_000
SCRIPT = Path(__file__).parent / "scripts" / "log_calls.py"
PEERS = {"trackio": 50_000, "tensorboard": 50_000, "mlflow": 300}


def run() -> None:
    """Prints our cost a call and the peers', one after another on the same machine."""
    with TemporaryDirectory() as folder:
        ours = _ours(Path(folder))
        peers = {name: _peer(name, calls, Path(folder) / name) for name, calls in PEERS.items()}
    report.line("logged_metric", unit="us", calls=CALLS, **ours, aim_us=5.0, aim_calls_per_s=200_000, peer_us_per_call=peers)


def _ours(folder: Path) -> dict[str, Any]:
    environment_ = os.environ | {"TRAINHOUSE_RUN_DIR": str(folder / "ours")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(CALLS)], env=environment_, capture_output=True, text=True, check=True, timeout=120
    )
    lines = (folder / "ours" / "rank-0" / "spool.jsonl").read_bytes().count(b'["m"')
    if lines != CALLS:
        raise RuntimeError(f"{lines} of {CALLS} points are in the spool")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _peer(name: str, calls: int, folder: Path) -> float:
    folder.mkdir()
    return float(environment.run("log_metric", name, str(calls), str(folder))["us_per_call"])
