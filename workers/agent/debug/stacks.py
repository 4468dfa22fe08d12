"""The Python stack of a rank, hung or not, read from outside.

Holds: the rank runs on; where its own process is no Python (a shell, a wrapper), its children are looked at instead. Bounded in time, in
the number of processes and in bytes, whatever names a rank gives its threads. What is kept beside a rank's logs holds no command line,
and what leaves the node no secret of the job: where those are not known, nothing is kept or shown.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import psutil

from trainhouse.events.wire.stack_tops import MAX_FRAMES, line
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.masker import Masker
from trainhouse.workers.launcher.processes import read_process
from trainhouse.workers.readable import readable
from trainhouse.workers.untrusted import read_plain

TIMEOUT_S = 20.0
MAX_CHILDREN = 16
MAX_KEPT_BYTES = 64 * 1024
MAX_READ_BYTES = 1024 * 1024
MAX_AT_ONCE = 8
_MAX_ERROR_BYTES = 4096
WITHHELD = "the stack is not shown: the secrets of the job cannot be read on this node, so they could not be masked\n"
_TIMED_OUT = "py-spy did not answer in time"
Secrets = Callable[[], Iterable[str] | None]
_FRAME = re.compile(r"^    (\S.*)$")


def keep_stacks(paths: AttemptPaths, ranks: Sequence[int], timeout_s: float, known: Secrets) -> None:
    """Writes each rank's stacks beside its logs, which ship them. Blocks up to `timeout_s`; a rank that takes longer has none.

    `known`: the values to mask, asked for once a stack is read, since a rank may have got another one meanwhile.
    """
    deadline_s = time.monotonic() + timeout_s
    pool = ThreadPoolExecutor(min(MAX_AT_ONCE, max(1, len(ranks))), thread_name_prefix="stacks")
    try:
        wait([pool.submit(_keep, paths, rank, deadline_s, known) for rank in ranks], timeout_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _keep(paths: AttemptPaths, rank: int, deadline_s: float, known: Secrets) -> None:
    process = read_process(paths.rank(rank).pid)
    if process is None:
        return
    text = dump_stack(process.pid, deadline_s - time.monotonic(), command_lines=False).strip()
    secrets = known()
    if secrets is None:
        return
    raw = _masked(text, secrets)
    if time.monotonic() > deadline_s:
        return  # the rank's files are about to be shipped to their end
    fd = os.open(paths.rank(rank).stacks, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    with os.fdopen(fd, "wb") as file:
        file.write(raw[:MAX_KEPT_BYTES] + b"\n")


def shown_stack(pid: int, known: Secrets) -> str:
    """Stacks for a person who asked, with the job's secrets masked, or why they are not shown. Blocks, up to TIMEOUT_S."""
    text = dump_stack(pid)
    secrets = known()
    return WITHHELD if secrets is None else _masked(text, secrets).decode("utf-8", "replace")


def _masked(text: str, secrets: Iterable[str]) -> bytes:
    """Without an end that may be the beginning of a secret: the text may have been cut there."""
    return Masker(secrets).feed(text.encode("utf-8", "replace"))


def top_of_stack(path: Path, rank: int) -> str:
    """Innermost frames of a rank's main thread, as a line in the reason of its end; empty if no stack is stored."""
    try:
        lines = read_plain(path, MAX_KEPT_BYTES + 1).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    threads = [n for n, text in enumerate(lines) if text.startswith("Thread ")]
    # A program without threads has one that has no name.
    begin = next((n + 1 for n in threads if '"MainThread"' in lines[n]), threads[0] + 1 if threads else len(lines))
    frames = [match[1] for text in lines[begin : begin + MAX_FRAMES] if (match := _FRAME.match(text))]
    return line(rank, frames) if frames else ""


def dump_stack(pid: int, timeout_s: float = TIMEOUT_S, *, command_lines: bool = True) -> str:
    """Stacks as text, or why there are none. Blocks, up to `timeout_s` for all processes together."""
    deadline_s = time.monotonic() + timeout_s
    text, error = _py_spy(pid, deadline_s, MAX_READ_BYTES)
    found = [text] if text else []
    room = MAX_READ_BYTES
    for child in [] if text else _children(pid):
        shown, _ = _py_spy(child, deadline_s, room)
        found += [shown] if shown else []
        room -= len(shown)
        if room <= 0:
            break
    if found:
        return "\n".join(found if command_lines else map(_without_command_line, found))
    way_out = "py-spy needs a Python program and the right to trace it: same user, or CAP_SYS_PTRACE"
    return f"the stack of pid {pid} could not be read: {error} ({way_out})\n{_kernel_side(pid)}"


def _without_command_line(dump: str) -> str:
    """py-spy writes it once, at the very beginning; what looks like it later is the name of a thread."""
    if not dump.startswith("Process "):
        return dump
    begin = dump.find("\nPython v")
    return dump[begin + 1 :] if begin >= 0 else ""


def _py_spy(pid: int, deadline_s: float, most_bytes: int) -> tuple[str, str]:
    """The stacks of one process, up to `most_bytes` of them, or "" and what py-spy said."""
    program = Path(sys.executable).with_name("py-spy")
    command = [str(program) if program.exists() else "py-spy", "dump", "--pid", str(pid)]
    if time.monotonic() >= deadline_s:
        return "", _TIMED_OUT
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        return "", str(error)
    try:
        raw, whole = _read(process, deadline_s, most_bytes)
        if whole:
            process.wait(max(0.1, deadline_s - time.monotonic()))
            assert process.stderr is not None
            error_text = process.stderr.read(_MAX_ERROR_BYTES).decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        raw, whole = b"", False
    finally:
        process.kill()
        process.communicate()
    text = raw.decode("utf-8", "ignore")
    if not whole:
        return (text, "") if len(raw) >= most_bytes else ("", _TIMED_OUT)
    return (text, "") if process.returncode == 0 else ("", (error_text or text).strip().partition("\n")[0])


def _read(process: subprocess.Popen[bytes], deadline_s: float, most_bytes: int) -> tuple[bytes, bool]:
    """Reads a process's output up to `deadline_s` and `most_bytes`; and whether it wrote no more."""
    assert process.stdout is not None
    fd, raw, whole = process.stdout.fileno(), bytearray(), False
    while not whole and len(raw) < most_bytes and readable(fd, deadline_s - time.monotonic()):
        piece = os.read(fd, most_bytes - len(raw))
        whole = not piece
        raw += piece
    return bytes(raw), whole


def _children(pid: int) -> list[int]:
    try:
        return [p.pid for p in psutil.Process(pid).children(recursive=True)][:MAX_CHILDREN]
    except psutil.NoSuchProcess:
        return []


def _kernel_side(pid: int) -> str:
    """Returns the public facts about a hanging process: state and kernel function of each thread."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            state, where = status.get("State", "?").strip(), (task / "wchan").read_text() or "?"
            lines.append(f"thread {task.name} {status.get('Name', '?')}: {state}, in {where}")
        except OSError:
            continue
    return "".join(f"{line}\n" for line in lines)
