"""Stacks of real processes, read from outside."""

import os
import signal
import subprocess
import sys

import pytest

from trainhouse.workers.agent.stacks import dump_stack

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
