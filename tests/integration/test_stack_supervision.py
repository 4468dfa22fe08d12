"""The supervisor of the stack, with small programs as its parts: restarts, their count, bounds, locks and orphans."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.deploy.local import stack
from trainhouse.deploy.local.errors import AlreadyRunningError, NotRunningError
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import stack_parts, supervisor_client, supervisor_config
from trainhouse.deploy.local.supervision.failed_passes import failed_passes
from trainhouse.deploy.local.supervision.part_groups import TIMED
from trainhouse.deploy.local.supervision.stack_parts import Part
from trainhouse.deploy.local.supervision.supervisor import MAX_BACKOFF_S, Restarts
from trainhouse.deploy.local.supervision.supervisor_client import PartState

pytestmark = pytest.mark.stack

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# Its child lives on when it is stopped, as an agent's ranks do.
PARENT = [sys.executable, "-c", "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"]
# Its end takes longer than the pause between two ticks of the supervisor's clock.
SLOW_TO_END = ["sh", "-c", "trap 'sleep 7; exit' TERM; echo ready; while :; do sleep 0.2; done"]
FLAPPER = [sys.executable, "-c", "raise SystemExit(3)"]
TALKER = [sys.executable, "-c", "import time; [print('x' * 999) for _ in range(60_000)]; print('end', flush=True); time.sleep(600)"]
NO_BROKER = {"TRAINHOUSE_KAFKA_BOOTSTRAP": "127.0.0.1:1"}


class Supervised:
    """A supervisor over a few programs."""

    def __init__(self, root: Path) -> None:
        self.folder = StackFolder(root)
        self.folder.make()
        self.folder.client_config.touch()
        self.parts = [
            Part("sleeper", "one", SLEEPER, root, 10),
            Part("flapper", "one", FLAPPER, root, 10),
            Part("slow_to_end", "one", SLOW_TO_END, root, 10, stop_wait_s=30),
            Part("talker", "two", TALKER, root, 20),
            Part("parent", "two", PARENT, root, 20, orphan_signal="SIGKILL"),
            # It waits for brokers that are not there. The other ends at once, and says that its own setting is wrong.
            Part("intake", "three", ["nice", "-n", "3", *stack_parts.run("intake")], root, 25, NO_BROKER, orphan_signal="SIGKILL"),
            Part("alerts", "three", stack_parts.run("alerts"), root, 25, {"TRAINHOUSE_LOG_LEVEL": "loud"}),
            Part("timed", TIMED, ["sh", "-c", "date +%s"], root, 30, every_s=5),
            Part("expire", TIMED, ["sh", "-c", "test -e mended || exit 7"], root, 30, every_s=5),
            Part("slow", TIMED, ["sh", "-c", "date +%s; exec sleep 600"], root, 30, every_s=5),
        ]
        with supervisor_client.locked(self.folder) as lock:
            self.process = stack.start_supervisor(self.folder, self.parts, lock, attached=True)
        stack.wait_for_supervisor(self.folder, self.process)

    def start(self, name: str) -> PartState:
        part = next(part for part in self.parts if part.name == name)
        supervisor_client.start(self.folder, part.group, name)
        # Not before: a signal between the supervisor's fork and exec meets its own handlers in the child.
        until(lambda: self.state(name).state == "RUNNING", f"{name} runs")
        return self.state(name)

    def state(self, name: str) -> PartState:
        return next(each for each in supervisor_client.states(self.folder) if each.name == name)

    def log(self, name: str) -> Path:
        return supervisor_config.log_file(self.folder, name)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    it = Supervised(tmp_path / "a folder, 100% odd")
    yield it
    supervisor_client.shut_down(it.folder, 30)
    it.process.wait(120)


def test_a_killed_part_comes_back_and_is_counted(supervised: Supervised) -> None:
    before = supervised.start("sleeper")
    assert before.restarts == 0
    for count in (1, 2):
        pid = supervised.state("sleeper").pid
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: supervised.state("sleeper").pid not in (0, pid), "it runs again")
        assert supervised.state("sleeper").restarts == count


def test_a_timed_part_is_started_by_the_clock_and_counts_no_restart(supervised: Supervised) -> None:
    def runs(name: str) -> list[int]:
        log = supervised.log(name)
        return [int(line) for line in log.read_text().splitlines()] if log.exists() else []

    until(lambda: len(runs("timed")) == 3, "three runs")
    first, second, third = runs("timed")
    assert second - first >= 4 and third - second >= 4, "no sooner than it is due"
    assert supervised.state("timed").restarts == 0
    assert len(runs("slow")) == 1 and supervised.state("slow").state == "RUNNING", "one run at a time"


def test_a_pass_that_failed_is_a_warning_until_the_next_timed_one_succeeds(supervised: Supervised) -> None:
    def warnings() -> list[str]:
        return failed_passes(supervisor_client.states(supervised.folder), {"expire": "its.log"})

    until(lambda: len(warnings()) == 1, "the pass has failed")
    [warning] = warnings()
    assert "expire failed (it ended with 7)" in warning and "its.log" in warning and "`trainhouse expire`" in warning
    (supervised.folder.root / "mended").touch()
    until(lambda: supervised.state("expire").state == "EXITED" and not warnings(), "a pass has succeeded")


def test_a_shutdown_starts_no_timed_part(supervised: Supervised) -> None:
    supervised.start("slow_to_end")
    until(lambda: "ready" in supervised.log("slow_to_end").read_text(), "it can be asked to end")
    until(lambda: supervised.log("slow").exists() and supervised.log("slow").read_text(), "a timed part has begun")
    assert supervisor_client.shut_down(supervised.folder, 60), "the supervisor waits for a part that it started while it stopped"
    assert len(supervised.log("slow").read_text().splitlines()) == 1


def test_a_part_that_keeps_ending_is_tried_for_ever_and_counted(supervised: Supervised) -> None:
    supervisor_client.start(supervised.folder, "one", "flapper")
    until(lambda: supervised.state("flapper").restarts >= 2, "two restarts")
    assert supervised.state("flapper").state in ("STARTING", "BACKOFF")


def test_the_pause_before_a_restart_is_bounded() -> None:
    process = SimpleNamespace(backoff=11, delay=1011.0)
    Restarts()._bound_pause(SimpleNamespace(process=process))
    assert (process.backoff, process.delay) == (MAX_BACKOFF_S, 1000.0 + MAX_BACKOFF_S)
    process = SimpleNamespace(backoff=3, delay=1003.0)
    Restarts()._bound_pause(SimpleNamespace(process=process))
    assert (process.backoff, process.delay) == (3, 1003.0)


def test_one_folder_has_one_stack(supervised: Supervised) -> None:
    refused = pytest.raises(AlreadyRunningError, match=rf"pid {supervised.process.pid}.*trainhouse down")
    with refused, supervisor_client.locked(supervised.folder):
        pass


def test_the_parts_do_not_hold_the_lock(supervised: Supervised) -> None:
    lock = str(supervised.folder.lock_file)
    child = psutil.Process(supervised.start("sleeper").pid)
    assert lock not in [file.path for file in child.open_files()]
    assert lock in [file.path for file in psutil.Process(supervised.process.pid).open_files()]


def test_when_the_supervisor_is_killed_its_parts_end_and_the_folder_is_free(supervised: Supervised) -> None:
    children = [psutil.Process(supervised.start(name).pid) for name in ("sleeper", "parent")]
    supervised.process.kill()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert len(gone) == 2, alive
    supervised.process.wait()
    with supervisor_client.locked(supervised.folder):
        pass
    with pytest.raises(NotRunningError, match="trainhouse up"):
        supervisor_client.states(supervised.folder)


def test_a_shutdown_leaves_what_a_part_started(supervised: Supervised) -> None:
    supervised.start("parent")
    until(lambda: supervised.log("parent").read_text().strip().isdecimal(), "its child runs")
    child = psutil.Process(int(supervised.log("parent").read_text()))
    assert supervisor_client.shut_down(supervised.folder, 30)
    try:
        assert child.is_running()
    finally:
        child.kill()


def test_an_own_part_is_a_fork_that_shares_what_the_supervisor_loaded(supervised: Supervised) -> None:
    supervisor_client.load(supervised.folder)
    supervisor_client.load(supervised.folder)  # repeated, it changes nothing
    part = psutil.Process(supervised.start("intake").pid)
    assert part.ppid() == supervised.process.pid
    assert shlex.split(" ".join(part.cmdline())) == stack_parts.run("intake"), "what it is, for `ps` and `top`"
    assert part.nice() == psutil.Process(supervised.process.pid).nice() + 3
    assert shared_mb(part.pid) > 20, "of what was loaded once"
    assert not [file for file in part.open_files() if file.path == str(supervised.folder.lock_file)]
    part.terminate()
    until(lambda: supervised.state("intake").pid not in (0, part.pid), "a signal ends it as it ends any program")


def test_an_own_part_that_was_loaded_or_not_ends_with_its_own_code_and_words(supervised: Supervised) -> None:
    def said() -> int:
        log = supervised.log("alerts")
        return log.read_text().count("'loud' is no log level") if log.exists() else 0

    supervisor_client.start(supervised.folder, "three", "alerts")
    until(lambda: said() >= 1, "it says why it ended")
    supervisor_client.load(supervised.folder)
    before = said()
    until(lambda: said() > before, "it says so again, as a fork of what was loaded")
    until(lambda: f"exit status {Exit.USAGE.value}" in (supervised.folder.logs / "supervisor.log").read_text(), "its code")


def test_a_killed_supervisor_takes_its_forks_along(supervised: Supervised) -> None:
    supervisor_client.load(supervised.folder)
    part = psutil.Process(supervised.start("intake").pid)
    supervised.process.kill()
    assert not psutil.wait_procs([part], timeout=60)[1]


def shared_mb(pid: int) -> float:
    """Memory that a process shares with others and that no file backs."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"Shared_Dirty:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


def test_logs_are_bounded(supervised: Supervised) -> None:
    supervised.start("talker")
    until(lambda: supervised.log("talker").read_bytes().endswith(b"end\n"), "60 MB are written")
    sizes = [path.stat().st_size for path in supervised.folder.logs.glob("talker.log*")]
    assert len(sizes) == 1 + supervisor_config.LOG_BACKUPS
    assert sum(sizes) <= len(sizes) * (supervisor_config.LOG_BYTES + 1024 * 1024)
