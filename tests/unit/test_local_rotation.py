"""A rotation of the brokers' passwords that is cut short at any step: the next one puts it right, whatever the broker that runs goes by."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trainhouse.deploy.local import (
    client_config,
    credential_list,
    kafka,
    kafka_sasl,
    layout,
    readiness,
    rotation,
    startup,
    supervisor_client,
)
from trainhouse.deploy.local.credentials import known, password
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts
from trainhouse.deploy.local.parts import kafka_server
from trainhouse.events.errors import BusUnavailable
from trainhouse.events.settings import KafkaSettings

PORTS = StackPorts.from_base(30_000)


class CutShortError(Exception):
    """The process is gone."""


class Machine:
    """A stack without its processes: what the broker that runs goes by, and a rotation that ends at a chosen step."""

    def __init__(self, folder: StackFolder, patched: pytest.MonkeyPatch) -> None:
        self.folder, self.steps, self.last_step = folder, 0, 0
        self.accounts: dict[str, str] = {}
        for module in (layout, kafka):
            patched.setattr(module, "write_private", self.step_of(module.write_private))
        patched.setattr(rotation, "set_passwords", self.step_of(self.set_passwords))
        patched.setattr(rotation, "lets_in", self.lets_in)
        patched.setattr(supervisor_client, "supervisor_pid", lambda _: 1)
        patched.setattr(supervisor_client, "states", lambda _: [])
        for name in ("start", "stop", "signal"):
            patched.setattr(supervisor_client, name, self.step_of(getattr(self, name)))
        patched.setattr(readiness, "answers", lambda *_: lambda: True)
        patched.setattr(kafka.KafkaServer, "answers", lambda server: self.lets_in(server.own_client))
        patched.setattr(kafka.KafkaServer, "_format", lambda _: None)
        patched.setattr(startup, "POLL_S", 0.0)
        patched.setattr(os, "fsync", lambda _: None)
        client_config.write(folder, Choices(PORTS.numbers, 2), client_config.keys_of(folder))
        folder.write_choices(Choices(PORTS.numbers, 2))
        kafka_server(folder, PORTS).prepare()
        self.start(folder, "servers", "kafka")
        self.accounts = client_config.passwords(folder)

    def step_of(self, does: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            self.steps += 1
            if self.steps == self.last_step:
                raise CutShortError
            return does(*arguments)

        return step

    def lets_in(self, settings: KafkaSettings) -> bool:
        return (settings.sasl_username, settings.sasl_password) == (kafka_sasl.BROKER, self.own)

    def set_passwords(self, settings: KafkaSettings, passwords: Mapping[str, str]) -> None:
        if not self.lets_in(settings):
            raise BusUnavailable("the brokers did not take the accounts")
        self.accounts |= passwords

    def start(self, folder: StackFolder, group: str, name: str) -> None:
        """A broker reads its own password when it starts."""
        if name == "kafka":
            found = re.search(r'user_broker="([^"]+)"', (folder.part("kafka") / "server.properties").read_text())
            assert found is not None
            self.own = found[1]

    def stop(self, *_: Any) -> None: ...
    def signal(self, *_: Any) -> None: ...

    def rotate(self, last_step: int = 0) -> None:
        self.steps, self.last_step = 0, last_step
        rotation.rotate(self.folder.root, (rotation.KAFKA,), say=lambda _: None)

    @property
    def sound(self) -> bool:
        """Whether the brokers go by what the files say, and nothing is left over."""
        newest = password(self.folder, "kafka", kafka_sasl.BROKER)
        names = {each.name for each in known(self.folder)}
        return self.own == newest and self.accounts == client_config.passwords(self.folder) and client_config.OLD_BROKER not in names


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    folder = StackFolder(tmp_path)
    folder.make()
    return Machine(folder, monkeypatch)


def test_a_rotation_gives_the_broker_and_all_accounts_new_passwords(machine: Machine) -> None:
    own, accounts = machine.own, dict(machine.accounts)
    machine.rotate()
    assert machine.sound and machine.own != own and not set(accounts.values()) & set(machine.accounts.values())


@pytest.mark.parametrize("cuts", [1, 2])
def test_one_that_is_cut_short_is_put_right_by_the_next(machine: Machine, cuts: int) -> None:
    machine.rotate()
    steps = machine.steps
    for last_step in range(1, steps + 1):
        for _ in range(cuts):
            with pytest.raises(CutShortError):
                machine.rotate(last_step)
        machine.rotate()
        assert machine.sound, f"cut at step {last_step} of {steps}"


def test_projects_accounts_are_rotated_and_listed(machine: Machine) -> None:
    before = password(machine.folder, "kafka", "project-vision")
    machine.rotate()
    assert machine.sound and machine.accounts["project-vision"] not in ("", before)
    assert "project-vision" in {each.name for each in credential_list.listing(machine.folder.root)}
    assert not (machine.folder.part("parts") / "project-vision.toml").exists()


def test_a_list_says_that_one_was_cut_short(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(startup.Startup, "restart", lambda *_: None)
        machine.rotate()
    notes = {each.name: each.note for each in credential_list.listing(machine.folder.root)}
    assert "rotate again" in notes[client_config.OLD_BROKER]
    client_config.forget_old_broker(machine.folder)
    assert client_config.OLD_BROKER not in {each.name for each in credential_list.listing(machine.folder.root)}
