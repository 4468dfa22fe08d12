"""Operations of Optuna's storages by 8 processes at once: `trainhouse.client.optuna_storage` on a stack, beside RDBStorage on SQLite.

The same script runs on both, one after the other on the same machine, twice in turn; of each the better round counts.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.scripts.optuna_ops import OPERATIONS
from tests.bench.stack import BenchStack, bench_stack

PROCESSES, TRIALS, ROUNDS = 8, 25, 2
AIM = 5.0
SCRIPT = Path(__file__).parent / "scripts" / "optuna_ops.py"


def run() -> None:
    """Prints operations a second of both, and the time of a trial's operations."""
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder, bench_stack(slots=1) as stack:
        found: dict[str, list[dict[str, Any]]] = {"ours": [], "sqlite": []}
        for number in range(ROUNDS):
            found["ours"].append(_round("ours", f"bench-{number}", stack))
            found["sqlite"].append(_round("sqlite", str(Path(folder) / f"{number}.db"), stack))
    ours, peer = (max(rounds, key=lambda each: each["per_s"]) for rounds in found.values())
    ratio = ours["per_s"] / peer["per_s"]
    report.line(
        "optuna_storage", unit="operations/s", processes=PROCESSES, trials=PROCESSES * TRIALS, **ours, aim_ratio=AIM, ratio=ratio,
        peer={"rdb_sqlite": peer},
    )  # fmt: skip


def _round(kind: str, place: str, stack: BenchStack) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), kind, place, str(TRIALS), str(PROCESSES)]
    done = subprocess.run(command, env=stack.environment, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the processes with {kind} failed: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    return {"per_s": PROCESSES * TRIALS * OPERATIONS / answer["took_s"], "trial_p50_ms": report.percentile(answer["took_ms"], 50)}
