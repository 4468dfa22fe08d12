"""An end to a run of tests that has a limit of its own: what was not begun by then is skipped, counted and named in the summary.

Off unless `TRAINHOUSE_TEST_BEGIN_UNTIL` holds a moment, in seconds since 1970. On a slow machine `.ci/run` would otherwise be stopped in
the midst of its tests, and say nothing of those that it ran. `make test-full` has no such end.
"""

from __future__ import annotations

import os
import time

import pytest

VARIABLE = "TRAINHOUSE_TEST_BEGIN_UNTIL"
REASON = "not begun: the time of this run was over"


class TimeLeft:
    """The plugin: skips each test whose turn comes at `until_s` or later, before its fixtures are made."""

    def __init__(self, until_s: float) -> None:
        self._until_s = until_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() >= self._until_s:
            pytest.skip(REASON)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = [report.nodeid for report in terminalreporter.stats.get("skipped", []) if REASON in str(report.longrepr)]
        if skipped:
            files = sorted({nodeid.split("::")[0] for nodeid in skipped})
            terminalreporter.section("not begun")
            terminalreporter.write_line(f"{len(skipped)} tests were not begun, since the time of this run was over; they are in:")
            for file in files:
                terminalreporter.write_line(f"  {file}")


def register(config: pytest.Config) -> None:
    """Adds the plugin where the environment names a moment; ValueError if that is no number."""
    until = os.environ.get(VARIABLE, "")
    if until:
        config.pluginmanager.register(TimeLeft(float(until)), "time-left")
