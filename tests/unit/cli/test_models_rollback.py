"""`trainhouse models rollback` against a registry's machine, without servers: it goes back from the champion that it saw, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.support.registry_requests import NAME, OF_MODEL, PROJECT, Registry
from trainhouse.cli.main import build
from trainhouse.cli.models import registry_commands
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client import ChangeRefusedError
from trainhouse.events import Event, ModelGate, ModelGateApplied, ModelRequestRefused, ModelRolledBack
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_registry import ModelRequest


@dataclass
class Requests:
    """A registry's machine as commands reach it. `meanwhile` happens after a command has read, before its request arrives."""

    registry: Registry = field(default_factory=Registry)
    meanwhile: Callable[[], object] = lambda: None

    def history(self) -> Iterator[Event]:
        return iter([each for each in self.registry.decisions if isinstance(each, ModelDecision | ModelRequestRefused)])

    def ask(self, event: ModelRequest, timeout_s: float) -> ModelDecision:
        self.meanwhile()
        first = self.registry.ask(event)[0]
        if isinstance(first, ModelRequestRefused):
            raise ChangeRefusedError(first.reason)
        assert isinstance(first, ModelDecision)
        return first


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Three versions without a gate's conditions; the first and then the second were champion."""
    made = Requests()
    for number in (1, 2, 3):
        made.registry.register(number)
    made.registry.ask(ModelGateApplied(**OF_MODEL, gate=ModelGate(approvals=0), user="ops"))
    for number in (1, 2):
        made.registry.promote(number)
    monkeypatch.setattr(registry_commands, "_requests", lambda: made)
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    return made


def roll_back(*more: str) -> Result:
    return CliRunner().invoke(build("models"), ["models", "rollback", f"{PROJECT}/{NAME}", "--reason", "complaints", *more])


@pytest.mark.parametrize("more", [(), ("--to", "1")])
def test_a_champion_that_changed_meanwhile_stays(requests: Requests, more: tuple[str, ...]) -> None:
    requests.meanwhile = lambda: requests.registry.promote(3)
    result = roll_back(*more)
    assert requests.registry.model.champion == 3
    assert isinstance(result.exception, CliError) and result.exception.code is Exit.REJECTED
    assert "version 3 by now, and the rollback was asked against version 2" in str(result.exception)


def test_the_champion_that_was_seen_is_rolled_back(requests: Requests) -> None:
    result = roll_back()
    assert result.exit_code == 0, result.output
    assert "@1 (1.0.0) is champion again" in result.output
    assert any(isinstance(each, ModelRolledBack) and each.version == 1 for each in requests.registry.decisions)
