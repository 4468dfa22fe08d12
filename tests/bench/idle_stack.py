"""What a stack takes on one machine where nothing happens: until it is up, and then of each of its processes.

CPU is what the kernel counted for the stack's own processes, so other work on the machine matters little; the wall time of the start is
that of this machine as it was. Memory counts a page that several of its processes share once (`resident`): what is anonymous, and pages
of the programs' own files, which the kernel may drop and read again.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench import report
from tests.bench.resident import Resident, resident
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import supervisor_client

SETTLE_S = float(os.environ.get("TRAINHOUSE_BENCH_SETTLE_S", "60"))
"""The launcher's warm process imports torch once the stack is up, and the broker compiles what it runs most."""

WINDOW_S = float(os.environ.get("TRAINHOUSE_BENCH_WINDOW_S", "60"))
UP_TIMEOUT_S = 600.0
TARGETS = {"cpu_percent": 15.0, "memory_mb": 1500.0, "up_s": 10.0}


@dataclass(frozen=True)
class Taken:
    """What one process took since it began, its ended children included, and the memory that is its."""

    part: str
    cpu_s: float
    memory: Resident


def run() -> None:
    """Prints one line: the start, then an idle stack as a whole and by part."""
    with tempfile.TemporaryDirectory(prefix="trainhouse-bench-") as folder:
        root = Path(folder) / "data"
        command = [sys.executable, "-m", "trainhouse.cli.main"]
        began_s = time.monotonic()
        up = psutil.Popen(
            [*command, "up", "--data-dir", str(root), "--ports", "auto"], stdout=subprocess.PIPE, text=True, env=_environment()
        )
        try:
            _wait_up(up, began_s)
            up_s, up_cpu_s = time.monotonic() - began_s, _cpu_s(up) + sum(each.cpu_s for each in _taken(root).values())
            time.sleep(SETTLE_S)
            before, from_s = _taken(root), time.monotonic()
            time.sleep(WINDOW_S)
            after, window_s = _taken(root), time.monotonic() - from_s
        finally:
            subprocess.run([*command, "down", "--data-dir", str(root)], capture_output=True, check=False, timeout=180)
            up.wait(60)
    _print(up_s, up_cpu_s, before, after, window_s)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_") and name != "JDK_JAVA_OPTIONS"}


def _wait_up(up: psutil.Popen, began_s: float) -> None:
    for line in up.stdout:
        report.note(line.rstrip())
        if "stack is up" in line:
            return
        if time.monotonic() - began_s > UP_TIMEOUT_S:
            break
    raise RuntimeError("the stack did not come up")


def _print(up_s: float, up_cpu_s: float, before: dict[int, Taken], after: dict[int, Taken], window_s: float) -> None:
    percent: dict[str, float] = {}
    anonymous_mb: dict[str, float] = {}
    files_mb: dict[str, float] = {}
    for pid, now in after.items():
        then = before[pid].cpu_s if pid in before else 0.0
        percent[now.part] = percent.get(now.part, 0.0) + 100 * (now.cpu_s - then) / window_s
        anonymous_mb[now.part] = anonymous_mb.get(now.part, 0.0) + now.memory.anonymous_bytes / 1e6
        files_mb[now.part] = files_mb.get(now.part, 0.0) + now.memory.file_bytes / 1e6
    report.line(
        "idle_stack",
        up_s=up_s,
        up_cpu_s=up_cpu_s,
        cpu_percent=sum(percent.values()),
        memory_mb=sum(anonymous_mb.values()) + sum(files_mb.values()),
        anonymous_mb=sum(anonymous_mb.values()),
        targets=TARGETS,
        cpu_percent_by_part=_most_first(percent),
        anonymous_mb_by_part=_most_first(anonymous_mb),
        files_mb_by_part=_most_first(files_mb),
        window_s=window_s,
        cores=os.cpu_count(),
        load_before=os.getloadavg()[1],
    )


def _most_first(by_part: dict[str, float]) -> dict[str, float]:
    return dict(sorted(by_part.items(), key=lambda each: -each[1]))


def _taken(root: Path) -> dict[int, Taken]:
    """By pid: the supervisor and all that it started."""
    supervisor = psutil.Process(supervisor_client.supervisor_pid(StackFolder(root)))
    processes = [supervisor, *supervisor.children(recursive=True)]
    memory = resident(process.pid for process in processes)
    found = {}
    for process in processes:
        try:
            found[process.pid] = Taken(_part(process.cmdline()), _cpu_s(process), memory[process.pid])
        except (psutil.Error, KeyError):
            continue
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _part(command: list[str]) -> str:
    """A process's name, as `trainhouse ps` says it where it is a part."""
    text = " ".join(command)
    ours = re.search(r"trainhouse\.cli\.main run (\w+)", text) or re.search(r"-m trainhouse\.(?:\w+\.)*(\w+)", text)
    if ours:
        return ours[1]
    return "kafka" if "kafka.Kafka" in text else "store" if "weed" in text else Path(command[0]).name if command else "?"


if __name__ == "__main__":
    run()
