"""A command from the warm process is the command: what it says, how it ends, whose environment and folder it has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.stack import warm_cli
from tests.support.waiting import until

CONSOLE = Path(sys.executable).parent / "trainhouse"


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")} | more


@pytest.mark.parametrize("command", ["--help", "submit --help", "nonsense", "status", "ps --data-dir /no/such", "submit -- python x.py"])
def test_it_says_and_ends_as_the_installed_command(command: str, tmp_path: Path) -> None:
    warm = warm_cli.run(command.split(), environment(), tmp_path, "", 120)
    cold = subprocess.run([CONSOLE, *command.split()], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


@pytest.mark.parametrize("command", ["--help", "nonsense", "status", "ps --data-dir /no/such"])
def test_on_the_path_of_a_shell_it_is_the_installed_command(command: str, tmp_path: Path) -> None:
    warm_cli.put_on_path(tmp_path / "bin")
    asked = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    on_path = environment(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    warm = subprocess.run(["bash", "-c", f"echo | trainhouse {command}"], env=on_path, **asked)
    cold = subprocess.run([CONSOLE, *command.split()], env=environment(), **asked)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_on_the_path_it_gets_signals_and_ends_with_who_gave_it(tmp_path: Path) -> None:
    warm_cli.put_on_path(tmp_path / "bin")
    pipe = tmp_path / "spec.yaml"
    os.mkfifo(pipe)
    away = environment(TRAINHOUSE_KAFKA_BOOTSTRAP="127.0.0.1:1")
    server = next(child for child in psutil.Process().children() if "tests.support.stack.warm_cli" in child.cmdline())
    for signum, code in (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL):
        with subprocess.Popen([tmp_path / "bin" / "trainhouse", "submit", str(pipe)], env=away, stderr=subprocess.DEVNULL) as given:
            until(lambda: len(server.children(recursive=True)) == 2, given.poll)
            given.send_signal(signum)
            assert given.wait(60) == code
        until(lambda: not server.children(recursive=True), lambda: server.children(recursive=True))


def test_each_has_its_own_environment_and_folder(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda folder: warm_cli.run(["ps"], environment(TRAINHOUSE_DATA_DIR=folder.name), folder, "", 120), folders))
    assert all(f"/{folder.name}" in each.stderr for folder, each in zip(folders, done, strict=True)), done


def test_one_that_takes_too_long_says_where_it_is_and_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "spec.yaml"
    os.mkfifo(pipe)
    with pytest.raises(subprocess.TimeoutExpired, match="1 seconds") as ended:
        warm_cli.run(["submit", str(pipe)], environment(TRAINHOUSE_KAFKA_BOOTSTRAP="127.0.0.1:1"), tmp_path, "", 1)
    assert "most recent call first" in str(ended.value.stderr), "where it was"
    server = next(child for child in psutil.Process().children() if "tests.support.stack.warm_cli" in child.cmdline())
    until(lambda: not server.children(recursive=True), lambda: server.children(recursive=True))
