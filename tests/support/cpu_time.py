"""CPU seconds of each test and of its fixtures, with all processes that it started and with the servers that it shares.

Off unless `TRAINHOUSE_TEST_CPU` names a file: then each process of tests writes one JSON line a phase (`setup`, `call`, `teardown`) of a
test to that name and its pid, and `python -m tests.support.cpu_time FILE...` sums them up. A process that was reaped counts for its
reaper, so no sampling is needed; one that outlives its parent and goes to init is left out once it ends. Waiting costs nothing here, so
figures hold on a busy machine; leave PYTHONDONTWRITEBYTECODE out of the environment as `make` does, or what is compiled anew is most of
what is seen.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

VARIABLE = "TRAINHOUSE_TEST_CPU"
# Of processes that have ended since, by those that waited for them.
ENDED = "ended"
_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class _Process:
    parent: int
    own_s: float
    reaped_s: float
    started: int


class CpuTime:
    """The plugin: looks at the tree of processes before and after each phase. A test without child processes costs no look at `/proc`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._labels: dict[tuple[int, int], str] = {}
        self._before = self._look()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, "setup")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, "call")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield from self._phase(item, "teardown")

    def _phase(self, item: pytest.Item, phase: str) -> Iterator[None]:
        try:
            return (yield)
        finally:
            now = self._look()
            parts = {name: round(s, 3) for name, s in since(self._before, now).items() if s > 0.002}
            self._before = now
            if parts:
                self._out.write(json.dumps({"test": item.nodeid, "phase": phase, "cpu_s": parts}) + "\n")

    def _look(self) -> dict[tuple[str, int, int], float]:
        """CPU seconds so far by label, pid and start; those of ended processes by the one that reaped them."""
        times = os.times()
        me = os.getpid()
        found = {("pytest", me, 0): times.user + times.system, (ENDED, me, 0): times.children_user + times.children_system}
        if not _has_children():
            return found
        for pid, process in _descendants(me).items():
            label = self._label(pid, process.started)
            found[label, pid, process.started] = process.own_s
            if process.reaped_s:
                found[f"{ENDED} of {label}", pid, process.started] = process.reaped_s
        return found

    def _label(self, pid: int, started: int) -> str:
        key = pid, started
        if self._labels.get(key, "pytest") == "pytest":  # before it executes another program
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                command = []
            self._labels[key] = label_of([part for part in command if part])
        return self._labels[key]


def label_of(command: list[str]) -> str:
    """What a process is, in a few words, by its command line."""
    if not command:
        return "?"
    name = Path(command[0]).name
    if name.startswith("python") and "-m" in command:
        at = command.index("-m") + 1
        module = ".".join(command[at].split(".")[-2:])
        return " ".join([module, *command[at + 1 : at + 3]]) if module == "cli.main" else module
    if name.startswith("python"):
        script = next((part for part in command[1:] if not part.startswith("-")), "-c")
        return Path(script).name if len(script) < 200 and "\n" not in script else "python -c"
    return re.sub(r"[^\w.-].*", "", name) or "?"


def since(before: dict[tuple[str, int, int], float], now: dict[tuple[str, int, int], float]) -> dict[str, float]:
    """What was added by label. What is in the times of a process that ended in between appears in those of the one that reaped it, with
    what it had taken before: that part is taken off."""
    spent: Counter[str] = Counter()
    for key, s in now.items():
        spent[key[0]] += s - before.get(key, 0.0)
    gone = sum(s for key, s in before.items() if key not in now)
    for name in sorted(spent, key=lambda each: -spent[each]):
        if name.startswith(ENDED) and gone > 0:
            less = min(gone, spent[name])
            spent[name] -= less
            gone -= less
    return dict(spent)


def _has_children() -> bool:
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "children").read_bytes():
                return True
        except OSError:
            continue
    return False


def _descendants(root: int) -> dict[int, _Process]:
    all_processes: dict[int, _Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rsplit(b")", 1)[1].split()
            except OSError:
                continue
            own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            all_processes[int(name)] = _Process(int(fields[1]), own * _TICKS_S, reaped * _TICKS_S, int(fields[19]))
    children: dict[int, list[int]] = {}
    for pid, process in all_processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: dict[int, _Process] = {}
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        found[pid] = all_processes[pid]
        todo += children.get(pid, ())
    return found


def register(config: pytest.Config) -> None:
    """Turns it on where the environment asks for it; each process has a file of its own, also those of lanes that run beside each other."""
    if name := os.environ.get(VARIABLE):
        # Open as long as the run.
        out = open(f"{name}.{os.getpid()}", "w", buffering=1, encoding="utf-8")  # noqa: SIM115
        config.pluginmanager.register(CpuTime(out), "trainhouse-cpu-time")


def summed(lines: list[dict[str, Any]], most: int = 40) -> str:
    """A table of files, of tests and of processes, the dearest first."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    for line in lines:
        s = sum(line["cpu_s"].values())
        files[line["test"].split("::")[0]] += s
        tests[f"{line['test'][:150]} {line['phase']}"] += s
        labels.update(line["cpu_s"])
    shown = [f"{sum(labels.values()):9.1f} s in all"]
    for title, counted in (("files", files), ("phases", tests), ("processes", labels)):
        shown += ["", title, *(f"{s:9.1f} {name}" for name, s in counted.most_common(most))]
    return "\n".join(shown)


if __name__ == "__main__":
    print(summed([json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]))
