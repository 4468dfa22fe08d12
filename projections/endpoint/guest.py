"""The process in which guests' SQL runs: an engine of its own over the writer's parts. The second of two walls.

Holds: it can open no file but the writer's folder (to read), its own scratch folder, libraries and what the engine reads of the machine;
no TCP port; no process outside; it inherits no secret, not even by its environment. Landlock keeps that, before the first question; the
kernel also refuses it new privileges. It ends with the projector, and is the first that the kernel ends where memory is short.
Never: writes the projector's folder: the disks are read-only, and so is the folder.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainhouse
from trainhouse import landlock
from trainhouse.projections.endpoint.frames import FrameError, receive, send
from trainhouse.projections.endpoint.mirror import mirror
from trainhouse.projections.errors import ProjectionError, QueryRefusedError

# What loads the engine or its clients is imported after the walls are up: an import may start threads, and those would stay free.
if TYPE_CHECKING:
    from trainhouse.projections.endpoint.engine import ReadPool
    from trainhouse.projections.store.clickhouse import ConnectClickHouse

_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/localtime", "/etc/ld.so.cache", "/dev/urandom", "/dev/null", "/sys/fs/cgroup", "/sys/devices")
_OF_THE_MACHINE = ("/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/sys", "/proc/cgroups")
_PR_SET_PDEATHSIG = 1
NICENESS = 5
MAX_FILE_BYTES = 256 * 1024**2


def main() -> int:
    """Answers until the socket at file descriptor `argv[1]` ends. Blocks."""
    link = socket.socket(fileno=int(sys.argv[1]))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    asked, _ = receive(link, 0)
    scratch, data = Path(asked["scratch"]), Path(asked["data"])
    confined = confine(scratch, data)
    from trainhouse.projections.endpoint.engine import Limits, ReadPool
    from trainhouse.projections.store.clickhouse import connect_embedded, embedded_options

    options = embedded_options(asked["memory_bytes"], 1)
    writer = connect_embedded(scratch / "engine", asked["memory_bytes"], 1)
    _copy(writer, asked["tables"])
    pool = ReadPool(scratch / "engine", options, Limits(**asked["limits"]), asked["connections"])
    send(link, {"ready": True, "confined": confined})
    _serve(link, pool, asked["connections"])
    return 0


def confine(scratch: Path, data: Path) -> bool:
    """Gives up all else, for good; False where the kernel has no Landlock. Raises LandlockError where there are threads already."""
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise landlock.LandlockError(f"{threads} threads run already, and those of before would stay free; begin in a fresh process")
    os.environ["TMPDIR"] = str(scratch)
    _first_to_go()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    version = landlock.abi()
    ports: tuple[int, ...] | None = () if version >= landlock.PORTS_SINCE_ABI else None
    libraries = {Path(p) for p in (sys.prefix, sys.base_prefix, *sys.path) if p} | _our_own()
    readable = [data, Path(f"/proc/{os.getpid()}"), *libraries, *map(Path, (*_SYSTEM, *_OF_THE_MACHINE))]
    scoped = version >= landlock.SCOPES_SINCE_ABI
    return landlock.restrict(landlock.existing(readable), [scratch], ports, ports, scoped)


def _our_own() -> set[Path]:
    """This package's folders, which a development install finds by links, and not by a path of libraries."""
    package = Path(trainhouse.__path__[0])
    return {package.resolve(), *(folder.resolve() for folder in package.iterdir() if folder.is_dir())}


def _first_to_go() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass


def _copy(writer: ConnectClickHouse, rows: Sequence[Sequence[str]]) -> None:
    wanted = mirror(rows)
    writer.command("SET fsync_metadata = 0")
    for statement in wanted.tables:
        writer.command(statement)
    left: Sequence[str] = wanted.views
    while left:
        missing, reason = [], ""
        for statement in left:
            try:
                writer.command(statement)
            except ProjectionError as error:
                missing.append(statement)
                reason = str(error)
        if len(missing) == len(left):
            raise ProjectionError(f"{len(left)} views cannot be made: {reason}")
        left = missing


def _serve(link: socket.socket, pool: ReadPool, connections: int) -> None:
    from trainhouse.projections.endpoint.request import MAX_QUERY_BYTES

    sending = threading.Lock()
    with ThreadPoolExecutor(connections, thread_name_prefix="guest") as threads:
        while True:
            try:
                asked, body = receive(link, MAX_QUERY_BYTES)
            except FrameError:
                return
            threads.submit(_answer, link, sending, pool, asked, body)


def _answer(link: socket.socket, sending: threading.Lock, pool: ReadPool, asked: dict[str, Any], body: bytes) -> None:
    header: dict[str, Any] = {"id": asked["id"]}
    content = b""
    try:
        answer = pool.query(body.decode(), asked["format"], asked["values"], asked["database"])
        content = answer.body
        counts = {"read_rows": answer.read_rows, "read_bytes": answer.read_bytes, "elapsed_s": answer.elapsed_s}
        header |= {"format": answer.format} | counts
    except QueryRefusedError as refused:
        header |= {"refused": str(refused)[:100_000], "code": refused.code}
    except Exception as error:
        header |= {"refused": f"the query failed: {type(error).__name__}", "code": 1002}
    with sending:
        send(link, header, content)


if __name__ == "__main__":
    sys.exit(main())
