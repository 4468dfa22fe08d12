"""CPU seconds of tests are counted once each, and by the names of what took them."""

from __future__ import annotations

import sys

import pytest

from tests.support.cpu_time import label_of, since, summed


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (["/x/bin/python", "-m", "trainhouse.cli.main", "run", "projector"], "cli.main run projector"),
        (["/x/bin/python", "-P", "-m", "trainhouse.projections.endpoint.guest", "345"], "endpoint.guest"),
        ([sys.executable, "train.py"], "train.py"),
        ([sys.executable, "-c", "import time\ntime.sleep(1)"], "python -c"),
        (["/x/bin/java", "-Xmx512m"], "java"),
        ([], "?"),
    ],
)
def test_a_process_is_named_by_its_command(command: list[str], label: str) -> None:
    assert label_of(command) == label


def test_a_process_that_ended_is_counted_once() -> None:
    before = {("pytest", 1, 0): 2.0, ("ended", 1, 0): 1.0, ("java", 7, 70): 5.0}
    now = {("pytest", 1, 0): 2.5, ("ended", 1, 0): 6.2}
    assert since(before, now) == {"pytest": 0.5, "ended": pytest.approx(0.2)}


def test_another_process_with_the_same_pid_is_another() -> None:
    assert since({("java", 7, 70): 5.0}, {("java", 7, 90): 1.0, ("ended", 1, 0): 5.0}) == {"java": 1.0, "ended": 0.0}


def test_the_dearest_come_first() -> None:
    lines = [
        {"test": "a.py::one", "phase": "call", "cpu_s": {"pytest": 1.0}},
        {"test": "b.py::two", "phase": "setup", "cpu_s": {"java": 3.0, "pytest": 0.5}},
    ]
    shown = summed(lines).splitlines()
    assert shown[0].split()[0] == "4.5"
    assert [line.split()[-1] for line in shown if line.endswith((".py", "java", "pytest"))] == ["b.py", "a.py", "java", "pytest"]
