"""The sum of several runs of tests: each lane writes what came of its tests, and `python -m tests.support.totals FOLDER` adds them up.

Off unless `TRAINHOUSE_TEST_TOTALS` names a folder. The lanes of `make test-full` run beside each other: what each says of skipped tests
stands somewhere in the midst of a long output, so `.ci/run` ends with the sum.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.time_left import REASON

VARIABLE = "TRAINHOUSE_TEST_TOTALS"
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
NOT_BEGUN = "not begun"


class Totals:
    """The plugin: writes one file a run, at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = {name: len(terminalreporter.stats.get(name, [])) for name in OUTCOMES}
        late = [report.nodeid for report in terminalreporter.stats.get("skipped", []) if REASON in str(report.longrepr)]
        counts["skipped"] -= len(late)
        found = {"counts": counts | {NOT_BEGUN: len(late)}, "files": Counter(nodeid.split("::")[0] for nodeid in late)}
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(found))


def register(config: pytest.Config) -> None:
    """Adds the plugin where the environment names a folder. Worker processes report to the one that started them, which counts."""
    folder = os.environ.get(VARIABLE, "")
    if folder and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Totals(Path(folder)), "totals")


def summary(folder: Path) -> str:
    """Lines about all runs that wrote to the folder: counts, and the files with tests that were not begun."""
    counts, files = Counter[str](), Counter[str]()
    runs = sorted(folder.glob("*.json"))
    for path in runs:
        found = json.loads(path.read_text())
        counts.update(found["counts"])
        files.update(found["files"])
    said = ", ".join(f"{counts[name]} {name}" for name in (*OUTCOMES, NOT_BEGUN) if counts[name] or name == "passed")
    lines = [f"{len(runs)} runs of tests: {said}"]
    if files:
        lines.append(
            f"Not begun, since the time was over, in {len(files)} files: {', '.join(f'{name} ({files[name]})' for name in sorted(files))}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(Path(sys.argv[1])))
