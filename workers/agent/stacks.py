"""The Python stack of a rank, hung or not, read from outside.

Holds: the rank runs on; where its own process is no Python (a shell, a wrapper), its children are looked at instead. Bounded in time
and in the number of processes.
"""

import subprocess
import sys
from pathlib import Path

import psutil

TIMEOUT_S = 20.0
MAX_CHILDREN = 16


def dump_stack(pid: int) -> str:
    """Stacks as text, or why there are none. Blocks, up to TIMEOUT_S a process."""
    text, said = _py_spy(pid)
    if text:
        return text
    found = [shown for child in _children(pid) if (shown := _py_spy(child)[0])]
    if found:
        return "\n".join(found)
    way_out = "py-spy needs a Python program and the right to trace it: same user, or CAP_SYS_PTRACE"
    return f"the stack of pid {pid} could not be read: {said} ({way_out})\n{_kernel_side(pid)}"


def _py_spy(pid: int) -> tuple[str, str]:
    """The stacks of one process, or "" and what py-spy said."""
    program = Path(sys.executable).with_name("py-spy")
    command = [str(program) if program.exists() else "py-spy", "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode == 0:
        return done.stdout, ""
    return "", (done.stderr or done.stdout).strip().partition("\n")[0]


def _children(pid: int) -> list[int]:
    try:
        return [p.pid for p in psutil.Process(pid).children(recursive=True)][:MAX_CHILDREN]
    except psutil.NoSuchProcess:
        return []


def _kernel_side(pid: int) -> str:
    """What any user may know of where a process hangs: state and kernel function of each thread."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            state, where = status.get("State", "?").strip(), (task / "wchan").read_text() or "?"
            lines.append(f"thread {task.name} {status.get('Name', '?')}: {state}, in {where}")
        except OSError:
            continue
    return "".join(f"{line}\n" for line in lines)
