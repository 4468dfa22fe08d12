"""Processes as the attempt's folder records them: who runs, how it ended, and how to end a whole tree.

Holds: a process is known by pid and creation time, so a reused pid is never taken for a rank. Records are written atomically.
Every process of an attempt descends from its keeper (a subreaper), also one that left its session or lost its parent.
Never: signals a process that is not of the attempt.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from trainhouse.workers.launcher.ports import AttemptPaths, ExitRecord, RankPaths


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON, all or nothing."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(value))
    os.replace(scratch, path)


def read_json(path: Path) -> Any:
    """The JSON in `path`, or None when it does not exist."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def write_process(path: Path, pid: int, **more: Any) -> None:
    """Record a living process."""
    try:
        created = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        created = 0.0
    write_json(path, {"pid": pid, "create_time": created, **more})


def read_process(path: Path) -> psutil.Process | None:
    """The recorded process if it still runs (a zombie does not), else None."""
    record = read_json(path)
    if record is None or record["pid"] is None:
        return None
    try:
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["create_time"]) < 0.01
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def write_exit(paths: RankPaths, status: int, note: str = "") -> None:
    """Record how a rank ended, from the status that `waitpid` gave, and what else its keeper knows of it."""
    signalled = os.WIFSIGNALED(status)
    record = {
        "exit_code": None if signalled else os.waitstatus_to_exitcode(status),
        "signal": os.WTERMSIG(status) if signalled else None,
        "at_ms": time.time_ns() // 1_000_000,
        "note": note,
    }
    write_json(paths.exit, record)


def read_exit(paths: RankPaths) -> ExitRecord | None:
    """Reads the end of the rank; None while it runs, and also when its keeper died before it could record it (see `rank_alive`)."""
    record = read_json(paths.exit)
    return None if record is None else ExitRecord(record["exit_code"], record["signal"], record["at_ms"], record.get("note", ""))


def rank_alive(paths: RankPaths) -> bool:
    """True while the rank's own process runs."""
    return read_process(paths.pid) is not None


def attempt_alive(attempt: AttemptPaths) -> bool:
    """True while any process of the attempt, its keeper included, runs on this node."""
    return bool(attempt_processes(attempt))


def attempt_processes(attempt: AttemptPaths) -> list[psutil.Process]:
    """All processes of the attempt, the keeper last."""
    keeper = read_process(attempt.keeper)
    roots = [keeper] if keeper else []
    recorded = [*attempt.folder.glob("rank-*/pid.json"), attempt.confinement]
    roots += [p for p in map(read_process, recorded) if p]
    found: dict[int, psutil.Process] = {}
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {p.pid: p for p in root.children(recursive=True)}
        found[root.pid] = root
    if keeper:
        found[keeper.pid] = found.pop(keeper.pid)
    return [p for p in found.values() if _runs(p)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def terminate(attempt: AttemptPaths) -> int:
    """SIGTERM to the process group of every rank that runs, as torchrun does. Returns how many; does not wait."""
    sent = 0
    for path in attempt.folder.glob("rank-*/pid.json"):
        process = read_process(path)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                sent += 1
    return sent


def kill_tree(attempt: AttemptPaths) -> int:
    """SIGKILL to every process of the attempt but the keeper, which records the ranks' end and leaves; returns how many.

    Does not wait. Call it again until `attempt_alive` is False; a keeper that outlives its ranks for `patience_s` is the caller's
    to kill with `kill_keeper`.
    """
    keeper = read_process(attempt.keeper)
    victims = [p for p in attempt_processes(attempt) if keeper is None or p.pid != keeper.pid]
    return kill_all(victims)


def kill_keeper(attempt: AttemptPaths) -> bool:
    """SIGKILL to the keeper itself: only when it does not end by itself; exits that it did not record stay unknown."""
    keeper = read_process(attempt.keeper)
    return keeper is not None and kill_all([keeper]) == 1


def kill_all(processes: Iterable[psutil.Process]) -> int:
    """SIGKILL each; those that are gone, or outside the scope of this process, do not count."""
    killed = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.kill()
            killed += 1
    return killed
