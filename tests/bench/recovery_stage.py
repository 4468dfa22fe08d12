"""What the benches of recovery share: the ranks' own moments, a signal to rank 1, and processes that end with a block."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench import report

PEERS = Path(__file__).parent / "peers"
STEP_S = 0.05
STEPS_BEFORE = 45
PATIENCE_S = 150.0


@dataclass(frozen=True)
class Moments:
    """What the ranks of one run wrote: start of the gang, rank, name, time, in order of time."""

    folder: Path

    def of(self, start: int, name: str) -> list[float]:
        """When each rank of a start had it, sorted."""
        found = (line.split() for path in self.folder.glob(f"{start:04d}-*") for line in path.read_text().splitlines(keepends=False))
        return sorted(float(words[1]) for words in found if len(words) > 1 and words[0] == name)

    def starts(self) -> list[int]:
        return sorted({int(path.name[:4]) for path in self.folder.glob("[0-9][0-9][0-9][0-9]-*")})

    def steps(self, start: int) -> list[float]:
        """Times at which any rank of a start finished a step, sorted."""
        found = (line.split() for path in self.folder.glob(f"{start:04d}-*") for line in path.read_text().splitlines())
        return sorted(float(words[1]) for words in found if len(words) > 1 and words[0].startswith("step-"))

    def pid(self, start: int, rank: int) -> int:
        return int((self.folder / f"{start:04d}-{rank}").read_text().split()[2])


def strike(moments: Moments, how: signal.Signals) -> tuple[int, float]:
    """Waits for some steps, sends the signal to rank 1; the start that was struck, and when."""
    until(lambda: bool(moments.starts()) and len(moments.steps(moments.starts()[-1])) >= 2 * STEPS_BEFORE, "the gang did not step")
    start = moments.starts()[-1]
    struck = time.time()
    os.kill(moments.pid(start, 1), how)
    return start, struck


def later(moments: Moments, start: int, struck: float) -> int:
    """The number of the start that stepped again."""

    def again() -> bool:
        newest = moments.starts()[-1]
        return newest > start and bool(moments.steps(newest))

    until(again, f"nothing stepped again within {PATIENCE_S:.0f} s")
    return moments.starts()[-1]


@contextmanager
def process(command: list[str], more: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """A process group of its own that ends with the block."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | more | {"OMP_NUM_THREADS": "1"}
    log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
    process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield lambda: process.poll() is None
    except TimeoutError:
        log.seek(0)
        report.note(log.read()[-3000:].decode(errors="replace"))
        raise
    finally:
        _kill_tree(process.pid)
        process.wait()


def _kill_tree(pid: int) -> None:
    try:
        root = psutil.Process(pid)
        tree = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for each in tree:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            pass


def until(condition: Callable[[], bool], otherwise: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.01)
