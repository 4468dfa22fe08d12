"""Checks of this machine: interpreter, PyTorch, CUDA, disk, memory, ports, clock.

Never: changes anything.
"""

import ctypes
import json
import os
import shutil
import subprocess  # nosec B404: this interpreter alone is started
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from trainhouse.cli.doctor import findings
from trainhouse.cli.doctor.findings import Finding

TORCH: Final = (
    "import json, torch; "
    "print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, 'devices': torch.cuda.device_count()}))"
)
TORCH_S: Final = 120.0
TIMEX_BYTES: Final = 208
TIME_ERROR: Final = 5


def machine(root: Path, *, stack_is_up: bool) -> Iterator[Finding]:
    """Yields the findings; `root`: the folder of the stack. Blocks for the import of torch."""
    yield findings.python_version(sys.version_info[:3], sys.executable)
    report, problem = torch_report()
    yield from findings.torch_of(report, problem, len(list(Path("/dev").glob("nvidia[0-9]*"))))
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    yield findings.disk(str(there), shutil.disk_usage(there).free)
    if (available := available_bytes()) is not None:
        yield findings.memory(available)
    if not stack_is_up:
        from trainhouse.deploy.local.free_ports import is_free
        from trainhouse.deploy.local.layout import BASE_PORT, COUNT

        numbers = range(BASE_PORT, BASE_PORT + COUNT)
        yield findings.ports([port for port in numbers if not is_free(port)], numbers[0], numbers[-1])
    yield findings.clock(is_synchronised())


def torch_report() -> tuple[dict[str, Any] | None, str]:
    """Version, CUDA's version and number of devices of torch, in a process of its own; or None and the reason. Blocks."""
    # -P: a file of the current folder is no module.
    command = [sys.executable, "-P", "-c", TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, check=False)  # nosec B603
    except subprocess.TimeoutExpired:
        return None, f"its import takes more than {TORCH_S:.0f} s"
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
    return json.loads(done.stdout.splitlines()[-1]), ""


def available_bytes() -> int | None:
    """Memory that is available, of the kernel; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def is_synchronised() -> bool | None:
    """Whether the kernel's clock follows another one (`adjtimex`); None where that cannot be asked."""
    if os.uname().sysname != "Linux":
        return None
    # All zero: nothing is set, the state is returned.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    return None if state < 0 else state != TIME_ERROR
