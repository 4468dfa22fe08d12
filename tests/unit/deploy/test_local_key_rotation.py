"""New signing keys for a stack that runs: those of before count until they are retired, in whatever step a rotation is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.credentials import credential_list, key_rotation, rotation, signing_keys
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts
from trainhouse.deploy.local.supervision import supervisor_client
from trainhouse.events.security.key_files import public_keys, read_key
from trainhouse.events.security.signing import SigningKey
from trainhouse.scheduler.stream.settings import StreamSettings
from trainhouse.workers.agent.debug.permission import ListedKeys

CHOICES = Choices(StackPorts.from_base(30_000).numbers, 2)
OLD, NEW, OTHER = (SigningKey.made().public_key for _ in range(3))
HEAD = "# whose requests count"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackFolder:
    found = StackFolder(tmp_path)
    found.make()
    client_config.write(found, CHOICES, client_config.keys_of(found))
    found.write_choices(CHOICES)
    monkeypatch.setattr(supervisor_client, "supervisor_pid", lambda _: None)
    return found


def rotate(folder: StackFolder) -> None:
    rotation.rotate(folder.root, (rotation.SIGNING,), say=lambda _: None)


def retire(folder: StackFolder) -> None:
    rotation.retire(folder.root, (rotation.SIGNING,), say=lambda _: None)


def scheduler_of(folder: StackFolder) -> StreamSettings:
    return StreamSettings(signing_key=signing_keys.platform_key(folder), platform_keys=signing_keys.platform_keys(folder))


def test_every_key_is_listed_with_its_file_and_its_age(folder: StackFolder) -> None:
    found = {(each.server, each.name): each for each in credential_list.listing(folder.root)}
    for name in ("platform", "operations", "fleet"):
        each = found[rotation.SIGNING, name]
        assert each.kind == "key" and each.file == f"keys/{name}.key" and each.age_s is not None and each.age_s < 600
        assert read_key(folder.root / each.file).private_text() not in json.dumps(each.__dict__, default=str)
    assert found[rotation.GATEWAY, "signing key"].file == "gateway/key"
    assert found["kafka", "operator"].kind == "password"
    assert not {path.relative_to(folder.root).as_posix() for path in folder.root.rglob("*.key")} - {each.file for each in found.values()}


def test_a_running_scheduler_takes_both_platform_keys_until_the_old_one_is_retired(folder: StackFolder) -> None:
    old = read_key(signing_keys.platform_key(folder)).public_key
    before = scheduler_of(folder).vetting()  # of a process that goes on over the rotation
    rotate(folder)
    new = read_key(signing_keys.platform_key(folder)).public_key
    after = scheduler_of(folder).vetting()
    assert new != old and {old, new} <= before.now().platform_keys and {old, new} == after.now().platform_keys
    assert ("signing", "platform of before") in {(each.server, each.name) for each in credential_list.listing(folder.root)}
    retire(folder)
    assert after.now().platform_keys == {new}
    assert ("signing", "platform of before") not in {(each.server, each.name) for each in credential_list.listing(folder.root)}


def test_a_running_agent_obeys_both_of_the_persons_keys_until_the_old_one_is_retired(folder: StackFolder) -> None:
    listed, old = signing_keys.operations_keys(folder), read_key(signing_keys.operations_key(folder)).public_key
    gateways = {read_key(signing_keys.gateway_key(folder)).public_key}
    with listed.open("a") as file:
        file.write(f"operator somebody {OTHER}\n")
    agent = ListedKeys(listed)
    rotate(folder)
    new = read_key(signing_keys.operations_key(folder)).public_key
    gateways |= {read_key(signing_keys.gateway_key(folder)).public_key}
    assert len(gateways) == 2 and set(agent) == {old, new, OTHER} | gateways and agent[new] == agent[old]
    retire(folder)
    assert set(agent) == {new, OTHER, read_key(signing_keys.gateway_key(folder)).public_key}


def test_two_rotations_leave_all_keys_since_the_last_retirement(folder: StackFolder) -> None:
    keys = [read_key(signing_keys.platform_key(folder)).public_key]
    for _ in range(2):
        rotate(folder)
        keys.append(read_key(signing_keys.platform_key(folder)).public_key)
    assert public_keys(signing_keys.platform_keys(folder)) == set(keys)
    retire(folder)
    assert public_keys(signing_keys.platform_keys(folder)) == {keys[-1]}


@pytest.mark.parametrize("then", ["rotate", "up", "retire"])
def test_a_cut_between_the_list_and_the_key_refuses_nobody(folder: StackFolder, then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = read_key(signing_keys.platform_key(folder)).public_key
    with monkeypatch.context() as patched:
        patched.setattr(key_rotation, "move_private", cut)
        with pytest.raises(KeyboardInterrupt):
            rotate(folder)
    assert read_key(signing_keys.platform_key(folder)).public_key == old
    if then == "up":
        client_config.write(folder, CHOICES, client_config.keys_of(folder))
    elif then == "retire":
        with pytest.raises(rotation.HalfRotatedError, match="rotate"):
            retire(folder)
    rotate(folder)
    assert read_key(signing_keys.platform_key(folder)).public_key != old
    retire(folder)
    for paths, found in (
        ((signing_keys.platform_key,), public_keys(signing_keys.platform_keys(folder))),
        ((signing_keys.operations_key, signing_keys.gateway_key), set(ListedKeys(signing_keys.operations_keys(folder)))),
    ):
        assert found == {read_key(path(folder)).public_key for path in paths}
    assert not list(folder.part("keys").glob("*.next"))


def cut(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_key_of_before_is_marked_and_the_new_one_listed() -> None:
    text = key_rotation.with_next(f"{HEAD}\noperator ana {OLD}\noperator bo {OTHER}  # a friend\n", "operator ana ", OLD, NEW)
    assert text.splitlines() == [HEAD, f"operator ana {OLD} {key_rotation.MARK}", f"operator bo {OTHER}  # a friend", f"operator ana {NEW}"]
    assert key_rotation.with_next(text, "operator ana ", OLD, NEW) == text
    assert key_rotation.retired(text, NEW).splitlines() == [HEAD, f"operator bo {OTHER}  # a friend", f"operator ana {NEW}"]
    assert f"operator ana {OLD}\n" in key_rotation.retired(text, OLD)


def test_a_key_that_was_not_listed_is_listed_until_it_is_retired() -> None:
    text = key_rotation.with_next(HEAD, "", OLD, NEW)
    assert text.splitlines() == [HEAD, f"{OLD} {key_rotation.MARK}", NEW]
