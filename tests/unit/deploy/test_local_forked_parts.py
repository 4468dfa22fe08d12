"""Which of a supervisor's programs are forks of it: our own roles, however they are wrapped; no other program."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainhouse.deploy.local.supervision import forked_parts, stack_parts, tether

TIED = [sys.executable, "-I", "-S", tether.__file__, "SIGTERM"]


@pytest.mark.parametrize("before", [[], TIED, [*TIED, "nice", "-n", "5"]])
def test_a_role_is_found_however_it_is_wrapped(before: list[str]) -> None:
    assert forked_parts.role_command([*before, *stack_parts.run("gateway")]) == stack_parts.run("gateway")


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["java", "kafka.Kafka"],
        [sys.executable, "-m", "trainhouse.cli.main", "store", "sweep"],
        [sys.executable, "-m", "trainhouse.cli.main", "run", "agent", "--log-level=debug"],
        ["/other/python", "-m", "trainhouse.cli.main", "run", "agent"],
    ],
)
def test_any_other_program_is_executed(command: list[str]) -> None:
    assert forked_parts.role_command([*TIED, *command]) is None


READ = """
import gc, json, os, sys
from trainhouse.deploy.local.supervision import forked_parts
forked_parts.load()
forked_parts.load()
print(json.dumps({"threads": len(os.listdir("/proc/self/task")), "modules": sorted(sys.modules), "set_aside": gc.get_freeze_count()}))
"""


def test_what_is_loaded_starts_no_thread_and_brings_no_engine() -> None:
    """A fork has the thread alone that forked; ClickHouse's engine and torch are each for one process, which loads them itself."""
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, timeout=120, check=True)
    loaded = json.loads(done.stdout)
    assert loaded["threads"] == 1
    assert not {"torch", "chdb", "pyarrow", "pandas", "numpy", forked_parts.MODULE} & set(loaded["modules"])
    assert {f"trainhouse.{name}" for name in ("scheduler.stream.roles.intake", "projections.alerts.service")} < set(loaded["modules"])
    assert loaded["set_aside"] > 0


def test_what_is_loaded_is_shared_and_writes_no_colours() -> None:
    """The parts wait for this one process: what one of them alone imports it imports itself, and none of them prints to a terminal."""
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(json.loads(done.stdout)["modules"])
    assert not {"rich", "pygments", "httpx._main", "trainhouse.gateway.serve", "trainhouse.workers.agent.main"} & loaded


ORPHAN = """
import os, sys, time
from trainhouse.deploy.local.supervision import tether
parent = os.getpid()
if os.fork():
    if sys.argv[1] == "stays":
        os.wait()
    os._exit(0)
while sys.argv[1] == "dies" and os.getppid() == parent:
    time.sleep(0.01)
if sys.argv[2] == "fork":
    tether.tie("SIGTERM", parent)
    print("lives on", flush=True)
else:
    command = [sys.executable, "-I", "-S", tether.__file__, "SIGTERM", "echo", "lives on"]
    os.execv(sys.executable, tether.with_parent(command, parent))
"""


@pytest.mark.parametrize("how", ["fork", "exec"])
@pytest.mark.parametrize("parent", ["stays", "dies"])
def test_a_part_does_not_outlive_a_supervisor_that_died_before_the_part_was_tied_to_it(parent: str, how: str) -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN, parent, how], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ("lives on\n" if parent == "stays" else "")


def test_a_command_that_is_not_tied_names_no_parent() -> None:
    assert tether.with_parent(["java", "kafka.Kafka"], 7) == ["java", "kafka.Kafka"]
    assert tether.with_parent([*TIED, "java"], 7) == [*TIED[:-1], "SIGTERM@7", "java"]
