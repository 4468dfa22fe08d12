"""How long a save holds training up: two gloo ranks with an FSDP2 state, beside a plain copy of it and torch's asynchronous saves."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report

SAVES = 12
SCRIPT = Path(__file__).parent / "scripts" / "checkpoint_stall.py"


def run() -> None:
    """Prints our stall, that of a plain copy, and the peers', from one run of the same two processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root = Path(__file__).parents[2]
    with TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(rank), str(port), folder, str(SAVES)],
                env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        said = [rank.communicate(timeout=600)[0] for rank in ranks]
    failed = [rank.returncode for rank in ranks if rank.returncode]
    if failed:
        raise RuntimeError(f"a rank ended with {failed[0]}")
    answer = json.loads(said[0].splitlines()[-1])
    report.line(
        "checkpoint_stall", unit="ms", saves=SAVES, **answer, aim_of_memcpy=1.2, is_of_memcpy=answer["stall_ms"] / answer["memcpy_ms"]
    )
