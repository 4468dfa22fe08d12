"""Parts that are started and stopped again: what is so already is no error, so that a rotation that was cut off can be repeated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xmlrpc.client import Fault

import pytest
from supervisor.xmlrpc import Faults

from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.supervision import supervisor_client


class Supervisor:
    """Refuses as the real one does."""

    def __init__(self, *running: str) -> None:
        self.running = set(running)

    def startProcess(self, name: str, wait: bool) -> None:
        self._want(name, False, Faults.ALREADY_STARTED)
        self.running.add(name)

    def stopProcess(self, name: str, wait: bool) -> None:
        self._want(name, True, Faults.NOT_RUNNING)
        self.running.remove(name)

    def signalProcess(self, name: str, signal: str) -> None:
        self._want(name, True, Faults.NOT_RUNNING)

    def _want(self, name: str, running: bool, code: int) -> None:
        if name == "g:unknown":
            raise Fault(Faults.BAD_NAME, "BAD_NAME")
        if (name in self.running) is not running:
            raise Fault(code, name)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    found = Supervisor("g:runs")
    remote: Any = SimpleNamespace(supervisor=found)
    monkeypatch.setattr(supervisor_client, "proxy", lambda _: remote)
    return found


def test_each_may_be_repeated(supervisor: Supervisor, tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    for _ in range(2):
        supervisor_client.stop(folder, "g", "runs")
        assert not supervisor.running
    for _ in range(2):
        supervisor_client.start(folder, "g", "runs")
        assert supervisor.running == {"g:runs"}


def test_what_is_killed_to_be_started_again_is_started_where_it_does_not_run(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor_client.replace(StackFolder(tmp_path), "g", "stopped")
    assert "g:stopped" in supervisor.running
    supervisor_client.replace(StackFolder(tmp_path), "g", "runs")


@pytest.mark.parametrize("call", ["start", "stop"])
def test_other_refusals_are_errors(supervisor: Supervisor, tmp_path: Path, call: str) -> None:
    with pytest.raises(Fault):
        getattr(supervisor_client, call)(StackFolder(tmp_path), "g", "unknown")
