"""Stacks of real processes, read from outside."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import psutil
import pytest

from trainhouse.events.wire.stack_tops import found_in
from trainhouse.workers.agent.core.agent_state import Running, Stopping
from trainhouse.workers.agent.debug import stacks
from trainhouse.workers.agent.debug.stacks import MAX_KEPT_BYTES, WITHHELD, dump_stack, keep_stacks, shown_stack, top_of_stack
from trainhouse.workers.agent.launch.rank_watch import killed_by_agent, reason
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.ports import ExitRecord

WAITS = "def waits_here():\n    print('ready', flush=True)\n    import time; time.sleep(60)\nwaits_here()"


@pytest.mark.parametrize("command", [[sys.executable, "-c", WAITS], ["sh", "-c", '"$0" -c "$1"; true', sys.executable, WAITS]])
def test_a_stack_is_read_also_behind_a_shell(command: list[str]) -> None:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert "waits_here" in dump_stack(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_program_that_is_no_python_says_so_and_where_it_waits() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        text = dump_stack(process.pid)
        assert "could not be read" in text and "CAP_SYS_PTRACE" in text and "sleep" in text
    finally:
        process.kill()
        process.wait()


def ranks_of(folder: Path, *pids: int) -> AttemptPaths:
    """An attempt whose ranks are these processes."""
    paths = AttemptPaths(folder)
    for rank, pid in enumerate(pids):
        paths.rank(rank).folder.mkdir(parents=True)
        paths.rank(rank).pid.write_bytes(orjson.dumps({"pid": pid, "create_time": psutil.Process(pid).create_time()}))
    return paths


def test_stacks_are_kept_beside_the_logs_without_command_lines_and_tell_where_the_rank_stood(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS, "--password=hunter2"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        paths = ranks_of(tmp_path, process.pid)
        keep_stacks(paths, (0, 1), 30, list)
        text = paths.rank(0).stacks.read_text()
        assert "waits_here (" in text and text.startswith("Python v") and "hunter2" not in text
        assert not paths.rank(1).stacks.exists(), "it has no process"
        told = top_of_stack(paths.rank(0).stacks, 0)
        assert "waits_here" in found_in(told)[0]
        assert told in reason(0, ExitRecord(None, 9, 1), paths.rank(0), "the gang hung")
    finally:
        process.kill()
        process.communicate()


NAMES = """
import sys, threading, time
name = "x" + "\\nProcess 1: " * 330
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(90,), name=name, daemon=True).start()
print("ready", flush=True)
time.sleep(90)
"""


def test_names_of_threads_that_look_like_command_lines_cost_no_time_and_cut_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", NAMES, "60", "--password=hunter2"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        paths = ranks_of(tmp_path, process.pid)
        began_s = time.process_time()
        keep_stacks(paths, (0,), 30, list)
        assert time.process_time() - began_s < 1
        text = paths.rank(0).stacks.read_text()
        assert text.startswith("Python v") and text.count("\nProcess 1: ") > 1000 and "hunter2" not in text
    finally:
        process.kill()
        process.communicate()


def test_a_stack_of_any_length_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", NAMES, "60"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        monkeypatch.setattr(stacks, "MAX_READ_BYTES", 50_000)
        assert len(dump_stack(process.pid)) == 50_000
    finally:
        process.kill()
        process.communicate()


def test_many_children_share_the_time_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    process = subprocess.Popen(
        ["sh", "-c", "for n in 1 2 3 4 5 6 7 8; do sleep 60 & done; echo ready; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        began = time.monotonic()
        assert "did not answer in time" in dump_stack(process.pid, 1.0)
        assert time.monotonic() - began < 6, "one after the other they would take nine times as long"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


TELLS = """
import os, threading, time
value = os.environ["TOKEN"]
def here():
    print("ready", flush=True)
    time.sleep(90)
threading.Thread(target=time.sleep, args=(90,), name="ws-" + value, daemon=True).start()
scope = {"here": here}
exec(compile("def f():\\n    here()\\nf()", f"of-{value}.py", "exec"), scope)
"""
VALUE = "first-value-8471"


def test_a_stack_carries_no_secret_of_the_job(tmp_path: Path) -> None:
    env = {**os.environ, "TOKEN": VALUE}
    process = subprocess.Popen([sys.executable, "-c", TELLS], stdout=subprocess.PIPE, env=env)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        paths = ranks_of(tmp_path, process.pid)
        keep_stacks(paths, (0,), 30, lambda: None)
        assert not paths.rank(0).stacks.exists(), "its secrets are not known"
        assert shown_stack(process.pid, lambda: None) == WITHHELD
        keep_stacks(paths, (0,), 30, lambda: [VALUE])
        kept, shown = paths.rank(0).stacks.read_text(), shown_stack(process.pid, lambda: [VALUE])
        for text in (kept, shown):
            assert "ws-***" in text and "(of-***.py:2)" in text and VALUE not in text
        told = reason(0, ExitRecord(None, 9, 1), paths.rank(0), "the gang hung")
        assert "stack at the verdict" in told and VALUE not in told
        assert VALUE in shown_stack(process.pid, list), "the program does show it"
    finally:
        process.kill()
        process.communicate()


def test_a_secret_is_masked_where_a_stack_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "dump_stack", lambda pid: f"Thread 1: {VALUE} {VALUE[:10]}")
    assert shown_stack(1, lambda: [VALUE]) == "Thread 1: *** "


def test_what_cannot_be_looked_at_in_time_delays_nobody(tmp_path: Path) -> None:
    stopped = subprocess.Popen(["sleep", "60"])
    try:
        os.kill(stopped.pid, signal.SIGSTOP)
        paths = ranks_of(tmp_path, stopped.pid)
        began = time.monotonic()
        keep_stacks(paths, (0,), 0.0, list)
        assert time.monotonic() - began < stacks.TIMEOUT_S / 2 and not paths.rank(0).stacks.exists()
    finally:
        stopped.kill()
        stopped.wait()


def test_a_stack_without_an_end_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "stacks.log"
    assert top_of_stack(path, 0) == ""
    path.write_bytes(b"x" * (MAX_KEPT_BYTES + 10))
    assert top_of_stack(path, 0) == ""
    path.write_text('Thread 1 (idle): "MainThread"\n')
    assert top_of_stack(path, 0) == ""


def test_what_the_agent_killed_is_not_said_to_be_out_of_memory(tmp_path: Path) -> None:
    rank, record = AttemptPaths(tmp_path).rank(0), ExitRecord(None, 9, 100)
    ours = Stopping("the gang hung", 5_000, killed_at_ms=90)
    assert killed_by_agent(record, ours)
    assert not killed_by_agent(record, Running()) and not killed_by_agent(record, Stopping("x", 5_000))
    assert not killed_by_agent(ExitRecord(None, 9, 80), ours), "it was gone before"
    assert not killed_by_agent(ExitRecord(None, 9, 100, "its memory ran out"), ours), "its keeper knows better"
    assert not killed_by_agent(ExitRecord(1, None, 100), ours)
    told = reason(0, record, rank, "the gang hung")
    assert "SIGKILL (Trainhouse sent it: the gang hung)" in told and "out of memory" not in told
    assert "out of memory" in reason(0, record, rank)
