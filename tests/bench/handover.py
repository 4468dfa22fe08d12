"""How long a program is held up that hands over 10,000 points: by the session, and by MLflow's client to our gateway and to its own store.

Each way is timed until the program may go on, and until every point is kept (in a file for the session, acked by the brokers for the
gateway, in the database for MLflow's own store). Beside them, what the session's own log costs: a sample every ten seconds, and what it
captures once.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.stack import bench_stack
from trainhouse.workers.session.logging import environment as environment_of
from trainhouse.workers.session.logging.auto_logging import EVERY_S
from trainhouse.workers.session.logging.system_metrics import SystemMetrics

POINTS = 10_000
SCRIPTS = Path(__file__).parent / "scripts"
CLIENT = Path(__file__).parent / "peers" / "handover.py"
ROUNDS = 2
SAMPLES = 50


def run() -> None:
    """Prints milliseconds, the best of a few rounds each, one after another on the same machine."""
    with TemporaryDirectory() as folder, bench_stack(slots=1) as stack:
        ours = min(_session(Path(folder) / str(n)) for n in range(ROUNDS))
        to_gateway = stack.environment | {
            "MLFLOW_TRACKING_URI": stack.environment["TRAINHOUSE_GATEWAY_URL"],
            "MLFLOW_TRACKING_TOKEN": stack.environment["TRAINHOUSE_GATEWAY_TOKEN"],
        }
        gateway = _best([_client([sys.executable, str(CLIENT), str(POINTS)], to_gateway) for _ in range(ROUNDS)])
        peers = [environment.run("handover", str(POINTS), f"sqlite:///{folder}/mlflow{n}.db") for n in range(ROUNDS)]
    report.line(
        "handover",
        unit="ms",
        points=POINTS,
        session_ms=ours,
        mlflow_client_to_gateway=gateway,
        aim_ms=100,
        own_log=_own_log(),
        peer_mlflow_client_to_sqlite=_best(peers),
    )


def _session(folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "log_calls.py"), str(POINTS)],
        env=os.environ | {"TRAINHOUSE_RUN_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["us_per_call"]) * POINTS / 1000


def _own_log() -> dict[str, float]:
    """Processor time of a system sample, its share of a processor at the usual interval, and of capturing the environment."""
    system = SystemMetrics(0, os.environ)
    system.sample(time.monotonic())
    begin = time.process_time()
    for _ in range(SAMPLES):
        system.sample(time.monotonic())
    sample_s = (time.process_time() - begin) / SAMPLES
    begin = time.process_time()
    environment_of.capture(None, Path.cwd())
    captured_s = time.process_time() - begin
    return {"sample_ms": sample_s * 1000, "share_pct": sample_s / EVERY_S * 100, "capture_once_ms": captured_s * 1000}


def _client(command: list[str], environ: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"the client failed with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _best(rounds: list[dict[str, Any]]) -> dict[str, float]:
    return {name: min(float(r[name]) for r in rounds) for name in rounds[0]}
