"""torchrun and torchft as peers of the bench of recovery: the same signal to the same program, on the same machine."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.recovery_stage import PEERS, STEP_S, STEPS_BEFORE, Moments, later, process, strike, until
from trainhouse.deploy.local.free_ports import free_port

COLLECTIVE_TIMEOUT_S = 10.0
# Without it all restarts share one store, and ranks read the addresses of those that are gone.
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def torchrun(how: signal.Signals, more: dict[str, str]) -> float | None:
    """Seconds from the signal to the first step of the next start; None: it never came back."""
    with tempfile.TemporaryDirectory() as folder:
        script = [str(PEERS / "steps.py"), folder, str(STEP_S), str(COLLECTIVE_TIMEOUT_S)]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3", "--nproc-per-node", "2", *script]
        with process(command, more) as alive:
            moments = Moments(Path(folder))
            start, struck = strike(moments, how)
            try:
                new = later(moments, start, struck)
            except TimeoutError:
                report.note(f"torchrun did not step again ({'alive' if alive() else 'it ended'})")
                return None
            return moments.steps(new)[0] - struck


def torchft() -> dict[str, float | None]:
    """Two replica groups of one rank; one is killed: the survivor's next step, and the first step that both take part in."""
    python = environment.python()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = [
            "--min_replicas",
            "1",
            "--quorum_tick_ms",
            "100",
            "--join_timeout_ms",
            "1000",
            "--heartbeat_timeout_ms",
            "1000",
            "--bind",
            f"[::]:{port}",
        ]
        with (
            process([str(python.parent / "torchft_lighthouse"), *words], {}),
            _group(python, folder, 0, port),
            _group(python, folder, 1, port),
        ):
            moments = Moments(Path(folder))
            until(lambda: len(_both(moments)) >= 2 * STEPS_BEFORE, "torchft did not step")
            struck = time.time()
            os.kill(moments.pid(0, 1), signal.SIGKILL)
            until(lambda: any(at > struck + 0.5 for at in _both(moments)), "torchft did not bring both back")
            alone = [
                float(w[1])
                for w in _lines(Path(folder), "*-0")
                if w[0].startswith("step-") and w[0].endswith("-1") and float(w[1]) > struck
            ]
            both = [at for at in _both(moments) if at > struck + 0.5]
            return {"torchft_survivor": min(alone) - struck, "torchft_both": min(both) - struck}


@contextmanager
def _group(python: Path, folder: str, group: int, lighthouse_port: int) -> Iterator[None]:
    script = [str(PEERS / "torchft_steps.py"), folder, str(STEP_S), str(COLLECTIVE_TIMEOUT_S)]
    port = str(free_port())
    words = [
        "--max-restarts",
        "3",
        "--nnodes",
        "1",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"localhost:{port}",
    ]
    command = [str(python), "-m", "torch.distributed.run", *words, *script]
    with process(command, {"REPLICA_GROUP_ID": str(group), "TORCHFT_LIGHTHOUSE": f"http://localhost:{lighthouse_port}"}):
        yield


def _both(moments: Moments) -> list[float]:
    """When group 1 finished steps in which two groups took part."""
    return sorted(float(w[1]) for w in _lines(moments.folder, "*-1") if w[0].startswith("step-") and w[0].endswith("-2"))


def _lines(folder: Path, pattern: str) -> list[list[str]]:
    rows = [line.split() for path in folder.glob(pattern) for line in path.read_text().splitlines()]
    return [words for words in rows if len(words) > 1]
