"""What a session costs a step: the same loop with it and without, on one thread of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report

ROUNDS, STEPS, WIDTH = 20, 20, 256
SCRIPT = Path(__file__).parent / "scripts" / "session_step.py"


def run() -> None:
    """Prints the share of a step that the session takes: measured by itself, and with its figures turned off."""
    report.line("session_step", unit="share", rounds=ROUNDS, steps=STEPS, **_run(figures=True), no_figures=_run(figures=False), aim=0.005)


def _run(*, figures: bool) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        environment = {"TRAINHOUSE_RUN_DIR": folder, "TRAINHOUSE_STEP_FIGURES": "1" if figures else "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), str(ROUNDS), str(STEPS), str(WIDTH)]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True, timeout=600)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer
