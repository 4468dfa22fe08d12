"""Probes of the machine: the stack's files as another uid, and every port that it listens on, without a credential.

Holds: the other uid is `OTHER_UID`; a port's answer counts as a success only if it gives or takes data.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from tests.security.campaign.outcome import Outcome
from tests.security.campaign.target import Target
from trainhouse.deploy.local.layout import read_toml

OTHER_UID = 65534
TIMEOUT_S = 3.0
METHODS = ("GET", "PUT", "POST", "DELETE", "OPTIONS")
PATHS = (
    "/",
    "/buckets/",
    "/buckets/trainhouse/",
    "/buckets/trainhouse/?recursive=true",
    "/dir/status",
    "/dir/assign",
    "/vol/status",
    "/status",
    "/stats/counter",
    "/ui/index.html",
    "/trainhouse/",
    "/1,01",
    "/submit",
    "/admin/assign_volume?volume=99",
    "/col/delete?collection=trainhouse",
)


def may_change_uid() -> bool:
    """Whether this process may start another as `OTHER_UID`."""
    return os.geteuid() == 0


def probe_files(target: Target, count: int, seed: int) -> Iterator[Outcome]:
    """Reads of the data folder's files as another uid; at most `count`, and at most as many as there are."""
    # Walked by `os`, which passes over what the engine removes meanwhile.
    found = (Path(folder) / name for folder, _, names in os.walk(target.stack.data_dir) for name in names)
    files = [path for path in found if path.is_file()]
    chosen = random.Random(seed).sample(files, min(count, len(files)))
    for path, answer in zip(chosen, _read_as_other(chosen), strict=True):
        yield Outcome("machine", "files", str(path), answer, f"{path} was read" if answer == "read" else "")


def _read_as_other(paths: Sequence[Path]) -> list[str]:
    """How opening each file ends for OTHER_UID. A fork, not another program: the interpreter itself may be closed to that uid."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(OTHER_UID, OTHER_UID, OTHER_UID)
            os.setresuid(OTHER_UID, OTHER_UID, OTHER_UID)
            os.write(writing, "\n".join(map(_opened, paths)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        answers = file.read().splitlines()
    os.waitpid(child, 0)
    return answers


def _opened(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return "read" if file.read(1) else "empty"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "error")


def probe_ports(target: Target, count: int, seed: int) -> Iterator[Outcome]:
    """HTTP requests without a credential to every port of the stack but the gateway and SQL, which have probes of their own."""
    rng = random.Random(seed)
    ports = _ports(target.stack.data_dir)
    with httpx.Client(timeout=TIMEOUT_S) as client:
        for _ in range(count):
            port, method, path = rng.choice(ports), rng.choice(METHODS), rng.choice(PATHS)
            yield _request(client, target, port, method, path)


def _request(client: httpx.Client, target: Target, port: int, method: str, path: str) -> Outcome:
    tried = f"{method} 127.0.0.1:{port}{path}"
    try:
        answer = client.request(method, f"http://127.0.0.1:{port}{path}", content=b"probe" if method in ("PUT", "POST") else None)
    except httpx.HTTPError as error:
        return Outcome("machine", "ports", tried, type(error).__name__)
    # A process's own figures: numbers by the names of topics and operations, nothing of a project.
    figures = answer.content.startswith(b"# HELP") and target.canary.encode() not in answer.content
    taken = method in ("PUT", "POST", "DELETE") and answer.status_code in (200, 201, 202, 204) and not figures
    given = method == "GET" and answer.status_code == 200 and b"trainhouse" in answer.content and not figures
    leak = f"{answer.content[:160]!r}" if taken or given else ""
    if answer.headers.get("access-control-allow-origin") == "*":
        leak = leak or "Access-Control-Allow-Origin: *"
    return Outcome("machine", "ports", tried, str(answer.status_code), leak)


def _ports(folder: Path) -> list[int]:
    found = read_toml(folder / "trainhouse.toml")
    apart = {found["gateway"]["port"], found["projector"]["http_port"]}
    return [port for port in read_toml(folder / "stack.toml")["ports"] if port not in apart]
