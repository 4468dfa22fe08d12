"""Two gloo ranks of a bench, each a process of its own that runs a script of `scripts`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def measured(script: str, *arguments: object, timeout_s: float) -> dict[str, Any]:
    """What rank 0 prints as its last line, in JSON. Each rank gets RANK PORT FOLDER and these arguments. Raises RuntimeError."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root = Path(__file__).parents[2]
    with TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "scripts" / script), str(rank), str(port), folder, *map(str, arguments)],
                env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        printed = [rank.communicate(timeout=timeout_s)[0] for rank in ranks]
    failed = [rank.returncode for rank in ranks if rank.returncode]
    if failed:
        raise RuntimeError(f"a rank ended with {failed[0]}")
    answer: dict[str, Any] = json.loads(printed[0].splitlines()[-1])
    return answer
