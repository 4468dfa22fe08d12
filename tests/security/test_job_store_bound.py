"""A rank fills its gang's rendezvous store: that ends its own attempt, with a sentence, and takes nothing of the machine.

The store's process is looked at from outside too: it has no way to files, to capabilities, or to other ports.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.confined_support import confinement_of
from tests.integration.launcher_support import TRAIN, Attempt
from tests.support.waiting import until
from trainhouse import landlock
from trainhouse.workers.agent.launch.rank_watch import reason
from trainhouse.workers.confinement.cgroups import Limits
from trainhouse.workers.confinement.layers import examine
from trainhouse.workers.launcher import Launcher, attempt_alive, store_walls
from trainhouse.workers.launcher.processes import read_process

COLD = {"PYTHONNOUSERSITE": "1"}
FILL = """
import os
from datetime import timedelta
from torch.distributed import TCPStore
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False, timedelta(seconds=60))
store.set("first", "1")
print("reached", flush=True)
for n in range(4096):
    store.set(f"k{n}", b"x" * (4 << 20))
print("all taken", flush=True)
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher(warm_wait_s=120)
    launcher.prepare()
    until(launcher.warm_ready)
    yield launcher
    launcher.close()


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[tuple[Attempt, Attempt]]:
    """The attacker's, and another job's gang."""
    made = Attempt(tmp_path / "attempts" / "mine" / "1", FILL), Attempt(tmp_path / "attempts" / "other" / "1", TRAIN, ranks=2)
    yield made
    for attempt in made:
        attempt.close()
        until(lambda attempt=attempt: not attempt_alive(attempt.paths))  # type: ignore[misc]


def store_of(attempt: Attempt) -> psutil.Process:
    """The process whose log is the store's."""
    keeper = read_process(attempt.paths.keeper)
    assert keeper is not None
    log = str(attempt.paths.folder / store_walls.LOG)

    def found() -> psutil.Process | None:
        return next((p for p in keeper.children() if os.path.realpath(f"/proc/{p.pid}/fd/2") == log), None)

    return until(found)


def start(launcher: Launcher, attempt: Attempt, warm: bool, confined: bool, **changes: object) -> None:
    confinement = None
    if confined:
        if not examine(sys.executable).complete:
            pytest.skip("this machine does not confine jobs")
        confinement = confinement_of(attempt, **changes)
    started = launcher.start(attempt.paths, attempt.launches(env={} if warm else COLD), attempt.store, confinement)
    assert started.warm == warm, started.why_cold


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "bare"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_a_full_store_fails_its_own_attempt_alone(
    launcher: Launcher, attempts: tuple[Attempt, Attempt], warm: bool, confined: bool
) -> None:
    mine, other = attempts
    start(launcher, mine, warm, confined)
    store = store_of(mine)
    most = 0

    def ended() -> bool:
        nonlocal most
        try:
            most = max(most, store.memory_info().rss)
        except psutil.NoSuchProcess:
            pass
        return mine.paths.rank(0).exit.exists()

    until(ended, lambda: mine.stdout() + mine.stderr(), every_s=0.02)
    record = mine.exit_of()
    assert mine.stdout().splitlines() == ["reached"] and not record.clean, mine.stderr()
    assert "rendezvous store reached its limit of memory" in reason(0, record, mine.paths.rank(0))
    assert most < store_walls.limit_of(1) + 2**30  # beside what torch itself takes; it was sent 16 GiB
    until(lambda: not attempt_alive(mine.paths))
    start(launcher, other, warm, confined)
    assert [other.exit_of(rank).exit_code for rank in (0, 1)] == [0, 0], other.stderr(0) + other.stderr(1)


def test_where_groups_can_be_made_the_store_counts_as_its_job(launcher: Launcher, attempts: tuple[Attempt, Attempt]) -> None:
    if not examine(sys.executable).on("limits"):
        pytest.skip("no control groups here")
    mine, _ = attempts
    start(launcher, mine, True, True, limits=Limits(memory_bytes=300 * 2**20))
    record = mine.exit_of()
    assert not record.clean and "Memory cgroup out of memory" in record.note, record.note + mine.stderr()
    until(lambda: not attempt_alive(mine.paths))


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_a_stores_process_has_nothing_to_give(launcher: Launcher, attempts: tuple[Attempt, Attempt], warm: bool) -> None:
    mine, _ = attempts
    # The one of a single cold rank is made when it is asked.
    asks = "import os, socket, time\nasked = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
    waits = asks + "while not os.path.exists('stop'): time.sleep(0.01)"
    (mine.paths.code / "train.py").write_text(waits)
    start(launcher, mine, warm, confined=False)
    store = store_of(mine)

    def status() -> dict[str, str]:
        return dict(line.split(":\t", 1) for line in Path(f"/proc/{store.pid}/status").read_text().splitlines() if ":\t" in line)

    until(lambda: status()["NoNewPrivs"] == "1" and status()["Seccomp"] == "2", status)
    held = ("CapEff", "CapPrm", "CapInh", *(("CapBnd",) if os.geteuid() == 0 else ()))
    assert {name: int(status()[name], 16) for name in held} == dict.fromkeys(held, 0)
    assert store.rlimit(psutil.RLIMIT_CORE) == (0, 0) and store.rlimit(psutil.RLIMIT_FSIZE)[1] == store_walls.LOG_BYTES
    (mine.paths.code / "stop").touch()
    assert mine.exit_of().exit_code == 0


def _enclosed(answer: multiprocessing.connection.Connection, port: int, other: int) -> None:

    store_walls.enclose(port, 1)
    tried = {}
    for name, attempt in {
        "reads": lambda: open("/etc/passwd").close(),
        "writes": lambda: open("/tmp/planted-by-a-store", "w").close(),
        "runs": lambda: os.execv("/bin/true", ["true"]),
        "connects": lambda: socket.create_connection(("127.0.0.1", other), 5).close(),
        "signals": lambda: os.kill(os.getppid(), 0),
    }.items():
        try:
            attempt()
            tried[name] = True
        except OSError:
            tried[name] = False
    answer.send(tried)


def test_what_is_tried_within_the_walls_fails() -> None:
    if landlock.abi() < landlock.SCOPES_SINCE_ABI:
        pytest.skip("this kernel's Landlock knows no scopes")
    here, there = multiprocessing.Pipe(duplex=False)
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("127.0.0.1", 0)) as other:
        child = multiprocessing.get_context("fork").Process(
            target=_enclosed, args=(there, own.getsockname()[1], other.getsockname()[1]), daemon=True
        )
        child.start()
        try:
            assert here.poll(60)
            tried = here.recv()
        finally:
            child.kill()
            child.join()
    assert tried == {"reads": False, "writes": False, "runs": False, "connects": False, "signals": False}
