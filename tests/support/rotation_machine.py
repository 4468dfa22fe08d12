"""A stack without its processes, for rotations that are cut off: what servers go by, and what each part read when it was started."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from trainhouse.deploy.local import client_config, layout
from trainhouse.deploy.local.credentials import key_rotation, rotation, rotation_note, signing_keys, token_keys
from trainhouse.deploy.local.credentials.passwords import known, password
from trainhouse.deploy.local.credentials.rotation_plan import KAFKA, READERS, SQL, STORE
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, read_toml
from trainhouse.deploy.local.servers import kafka_broker, kafka_sasl, seaweedfs
from trainhouse.deploy.local.supervision import readiness, stack_parts, startup, supervisor_client
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.grants import PRINCIPALS
from trainhouse.events.security.key_files import public_keys, read_key
from trainhouse.events.settings import KafkaSettings
from trainhouse.workers.agent.debug.permission import read_keys

PORTS = StackPorts.from_base(30_000)
CHOICES = Choices(PORTS.numbers, 2)


class CutShortError(Exception):
    """The process is gone."""


class Machine:
    """A stack without its processes: what those that run go by, and a rotation that ends at a chosen step."""

    def __init__(self, folder: StackFolder, patched: pytest.MonkeyPatch) -> None:
        self.folder, self.steps, self.last_step = folder, 0, 0
        self.accounts: dict[str, str] = {}
        self.taken: set[str] = set()  # keys that the store takes
        self.held: dict[str, dict[str, Any]] = {}  # by part: its settings when it was started
        self.signs: dict[str, str] = {}  # by part: its public key when it was started
        self.restarted: list[str] = []
        for module in (layout, kafka_broker, seaweedfs, token_keys, key_rotation):
            patched.setattr(module, "write_private", self.step_of(module.write_private))
        patched.setattr(key_rotation, "move_private", self.step_of(key_rotation.move_private))
        patched.setattr(rotation_note, "over", self.step_of(rotation_note.over))
        patched.setattr(rotation, "set_passwords", self.step_of(self.set_passwords))
        patched.setattr(rotation, "lets_in", self.lets_in)
        patched.setattr(supervisor_client, "supervisor_pid", lambda _: 1)
        patched.setattr(supervisor_client, "states", lambda _: [])
        for name in ("start", "stop", "signal"):
            patched.setattr(supervisor_client, name, self.step_of(getattr(self, name)))
        patched.setattr(readiness, "answers", lambda *_: lambda: True)
        patched.setattr(kafka_broker.KafkaServer, "answers", lambda server: self.lets_in(server.own_client))
        patched.setattr(kafka_broker.KafkaServer, "_format", lambda _: None)
        patched.setattr(seaweedfs.StoreServer, "answers", lambda server: server.keys.access_key in self.taken)
        patched.setattr(startup, "POLL_S", 0.0)
        patched.setattr(os, "fsync", lambda _: None)
        self.up()

    def up(self) -> None:
        """What `up` does after a `down`, without the processes."""
        client_config.forget_next_key(self.folder)
        client_config.write(self.folder, CHOICES, client_config.keys_of(self.folder))
        self.folder.write_choices(CHOICES)
        stack_parts.kafka_server(self.folder, PORTS).prepare()
        self.store.folder.mkdir(exist_ok=True)
        self.store.write_keys()
        self.signal(self.folder, "servers", "store", "HUP")
        for name in ("kafka", *PRINCIPALS):
            self.start(self.folder, "", name)
        client_config.forget_old_broker(self.folder)
        self.accounts = client_config.passwords(self.folder)
        rotation_note.over(self.folder)

    @property
    def store(self) -> seaweedfs.StoreServer:
        return stack_parts.store_server(self.folder, PORTS, client_config.keys_of(self.folder))

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
            raise BusUnavailableError("the brokers did not take the accounts")
        self.accounts |= passwords

    def start(self, folder: StackFolder, group: str, name: str) -> None:
        """A part reads its own settings when it starts, a broker its own password."""
        if name == "kafka":
            found = re.search(r'user_broker="([^"]+)"', (folder.part("kafka") / "server.properties").read_text())
            assert found is not None
            self.own = found[1]
            return
        self.held[name] = read_toml(client_config.part_config(folder, name))
        self.signs[name] = read_key(signing_keys.platform_key(folder)).public_key

    def stop(self, folder: StackFolder, group: str, name: str) -> None:
        self.restarted.append(name)

    def signal(self, folder: StackFolder, group: str, name: str, sent: str) -> None:
        """The store reads its keys again; an agent that is killed is started by its supervisor."""
        if name == "store":
            (identity,) = json.loads(self.store.config_file.read_text())["identities"]
            self.taken = {each["accessKey"] for each in identity["credentials"]}
        else:
            self.restarted.append(name)
            self.start(folder, group, name)

    def rotate(self, last_step: int = 0, servers: Sequence[str] = (KAFKA,)) -> None:
        self.steps, self.last_step = 0, last_step
        rotation.rotate(self.folder.root, servers, say=lambda _: None)

    @property
    def sound(self) -> bool:
        """Whether the brokers go by what the files say, and nothing is left over."""
        newest = password(self.folder, "kafka", kafka_sasl.BROKER)
        names = {each.name for each in known(self.folder)}
        left = names & {client_config.OLD_BROKER, client_config.NEXT_KEY} or rotation_note.pending(self.folder)
        return self.own == newest and self.accounts == client_config.passwords(self.folder) and not left

    def let_in_everywhere(self) -> None:
        """Whether each part that runs is let in with what it holds, but for the brokers; and would be, if it were started now."""
        of_now = {name: read_toml(client_config.part_config(self.folder, name)) for name in PRINCIPALS}
        for settings in (self.held, of_now):
            assert {settings[name]["s3"]["access_key"] for name in READERS[STORE]} <= self.taken
        own = read_key(signing_keys.platform_key(self.folder)).public_key
        listed = public_keys(signing_keys.platform_keys(self.folder))
        assert {own, *(self.signs[name] for name in ("intake", "detector"))} <= listed | {self.signs["scheduler"]}
        assert read_key(signing_keys.operations_key(self.folder)).public_key in read_keys(signing_keys.operations_keys(self.folder))

    def go_by_the_files(self) -> None:
        """Every part holds what its file says now, of what it uses."""
        for server, section in ((KAFKA, "kafka"), (STORE, "s3"), (SQL, "clickhouse")):
            for name in READERS[server] & set(stack_parts.NAMES) - {"kafka"}:
                assert self.held[name][section] == read_toml(client_config.part_config(self.folder, name))[section], name
        assert self.signs["intake"] == read_key(signing_keys.platform_key(self.folder)).public_key
