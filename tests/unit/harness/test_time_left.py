"""A run of tests with an end of its own: what is not begun by then makes no fixture, is skipped, and stands in the summary."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.time_left import VARIABLE, register

ROOT = Path(__file__).parents[3]
FILE = """
import time
import pytest

@pytest.fixture
def server():
    raise RuntimeError("a fixture was made for a test that was not begun")

def test_first():
    while time.time() < {until}:
        time.sleep(0.01)

@pytest.mark.parametrize("number", [1, 2])
def test_second(number, server):
    pass
"""


def run(folder: Path, until_s: float, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(
        "from tests.support.time_left import register\n\ndef pytest_configure(config):\n    register(config)\n"
    )
    (folder / "test_two.py").write_text(FILE.format(until=until_s))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), *options, str(folder)]
    environment = os.environ | {VARIABLE: str(until_s), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("options", [[], ["-n", "2", "--dist", "loadfile"]], ids=["one process", "two"])
def test_what_was_not_begun_in_time_is_skipped_and_named(tmp_path: Path, options: list[str]) -> None:
    # The first test may itself be late on a machine that is slow: then none was begun, and that is said.
    ran = run(tmp_path, time.time() + 20, *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    skipped = 3 if "1 passed" not in ran.stdout else 2
    assert f"{skipped} tests were not begun, since the time of this run was over; they are in:\n  test_two.py" in ran.stdout


def test_what_was_begun_in_time_counts(tmp_path: Path) -> None:
    ran = run(tmp_path, time.time() + 3600, "-k", "second")
    assert ran.returncode == 1 and "2 errors" in ran.stdout and "were not begun" not in ran.stdout


def test_a_moment_that_is_no_number_is_refused(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "noon")
    with pytest.raises(ValueError, match="noon"):
        register(pytestconfig)
