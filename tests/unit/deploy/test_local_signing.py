"""Which signatures a local stack asks for, and which process has which key."""

from pathlib import Path

import pytest

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.client_config import exports, part_config
from trainhouse.deploy.local.credentials import signing_keys
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, read_toml, write_toml
from trainhouse.events.security.grants import PRINCIPALS
from trainhouse.events.security.key_files import read_key
from trainhouse.workers.agent.debug.permission import KnownKey, read_keys

SIGNING = ("intake", "scheduler", "detector")


@pytest.fixture
def folder(tmp_path: Path) -> StackFolder:
    found = StackFolder(tmp_path)
    found.make()
    return found


def up(folder: StackFolder) -> dict[str, dict[str, object]]:
    client_config.write(folder, Choices(StackPorts.from_base(30_000).numbers, 2), client_config.keys_of(folder))
    return read_toml(folder.client_config)


def test_a_new_stack_asks_for_signatures_and_its_parts_have_the_key(folder: StackFolder) -> None:
    up(folder)
    for name in PRINCIPALS:
        content, variables = read_toml(part_config(folder, name)), exports(folder, name)
        settings = {k for k in variables if "SIGN" in k or "OPERATIONS" in k or "FLEET" in k}
        if name in SIGNING:
            key, listed = str(signing_keys.platform_key(folder)), str(signing_keys.platform_keys(folder))
            assert content["scheduler"] == {"signing_key": key, "platform_keys": listed, "signatures": "required"}
            assert settings == {"TRAINHOUSE_SCHEDULER_SIGNING_KEY", "TRAINHOUSE_SCHEDULER_SIGNATURES"}
        elif name == "agent":
            assert content["agent"]["require_signed"] and not content["scheduler"]
            assert settings == {"TRAINHOUSE_AGENT_OPERATIONS_KEYS", "TRAINHOUSE_AGENT_REQUIRE_SIGNED"}
        elif name == "gateway":
            assert settings == {"TRAINHOUSE_GATEWAY_OPERATIONS_KEY"} and not content["scheduler"]
        else:
            assert not content["scheduler"] and "require_signed" not in content["agent"] and not settings
        assert not content["operations"] and not content["fleet"]


def test_agents_obey_the_person_and_who_was_added(folder: StackFolder) -> None:
    content = up(folder)
    person = read_key(Path(str(content["operations"]["key"])))
    listed = signing_keys.operations_keys(folder)
    with listed.open("a") as file:
        file.write(f"operator somebody {read_key(signing_keys.fleet_key(folder)).public_key}\n")
    assert up(folder)["operations"] == content["operations"]
    added, gateway = (read_key(key(folder)).public_key for key in (signing_keys.fleet_key, signing_keys.gateway_key))
    assert set(read_keys(listed)) == {person.public_key, added, gateway}
    assert read_keys(listed)[gateway] == KnownKey("gateway", "local")
    assert exports(folder)["TRAINHOUSE_OPERATIONS_KEY"] == str(signing_keys.operations_key(folder))
    assert {path.stat().st_mode & 0o077 for path in folder.part("keys").glob("*.key")} == {0}


def test_an_older_folder_asks_for_signatures_from_its_second_start_on(folder: StackFolder) -> None:
    write_toml(folder.client_config, {"kafka": {"bootstrap": "127.0.0.1:1"}})
    assert up(folder)["scheduler"]["signatures"] == "accepted"
    assert up(folder)["scheduler"]["signatures"] == "required"
