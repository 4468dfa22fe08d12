"""`trainhouse fleet` beside a stack of the benches: a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.stack import BenchStack

SUMMARY = "fleet.json"


@contextmanager
def running_fleet(
    stack: BenchStack, folder: Path, arguments: Sequence[str], patience_s: float, stop_s: float
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The fleet, once the scheduler has answered all its nodes, and how long that took; stopped as by Ctrl-C.

    It must come up within `patience_s` and end within `stop_s`; its SUMMARY is in `folder` then.
    """
    words = folder / "fleet.err"
    with words.open("wb") as err, (folder / SUMMARY).open("wb") as out:
        command = [sys.executable, "-m", "trainhouse.cli.main", "fleet", *arguments, "--json"]
        process = subprocess.Popen(command, env=stack.environment, stdout=out, stderr=err, cwd=folder)
    begin = time.monotonic()
    try:
        while "has answered" not in words.read_text():
            if process.poll() is not None or time.monotonic() > begin + patience_s:
                raise RuntimeError(f"the fleet did not come up: {words.read_text()[-2000:]}")
            time.sleep(0.05)
        yield process, time.monotonic() - begin
        process.send_signal(signal.SIGINT)
        process.wait(stop_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
