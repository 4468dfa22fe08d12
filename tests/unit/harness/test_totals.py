"""The sum of several runs of tests counts each of them once, and names what was not begun."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import time_left, totals

ROOT = Path(__file__).parents[3]
FILE = """
import pytest

def test_passes():
    pass

def test_fails():
    assert False

@pytest.mark.skip(reason="another machine")
def test_skipped():
    pass
"""


def run(folder: Path, into: Path, until_s: float, *options: str) -> None:
    folder.mkdir()
    (folder / "conftest.py").write_text(
        "from tests.support import time_left, totals\n\n"
        "def pytest_configure(config):\n    time_left.register(config)\n    totals.register(config)\n"
    )
    (folder / "test_three.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), *options, str(folder)]
    environment = os.environ | {time_left.VARIABLE: str(until_s), totals.VARIABLE: str(into), "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["one process", "two"])
def test_runs_are_added_up(tmp_path: Path, options: list[str]) -> None:
    into = tmp_path / "totals"
    run(tmp_path / "whole", into, time.time() + 3600, *options)
    run(tmp_path / "late", into, time.time() - 1, *options)
    assert totals.summary(into) == (
        "2 runs of tests: 1 passed, 1 failed, 1 skipped, 3 not begun\nNot begun, since the time was over, in 1 files: test_three.py (3)"
    )


def test_no_run_at_all_is_not_a_pass(tmp_path: Path) -> None:
    assert totals.summary(tmp_path) == "0 runs of tests: 0 passed"
