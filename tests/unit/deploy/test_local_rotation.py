"""A rotation of the brokers' passwords that is cut short at any step: the next one puts it right, whatever the broker that runs goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rotation_machine import CutShortError, Machine
from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.credentials import credential_list, rotation
from trainhouse.deploy.local.credentials.passwords import password
from trainhouse.deploy.local.credentials.rotation_plan import GATEWAY, SERVERS, SIGNING, SQL, STEPS, STORE, Step, plan, started_again
from trainhouse.deploy.local.credentials.token_keys import of_before, token_key
from trainhouse.deploy.local.errors import TooManyKeptError
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.stack_state import warnings
from trainhouse.deploy.local.supervision import startup


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


def test_what_others_check_by_is_changed_first_and_the_parts_are_started_again_last() -> None:
    steps = plan(SERVERS, runs=True)
    assert steps.index(Step.STORE_TAKES) < steps.index(Step.STORE_USED)
    assert steps[-1] is Step.RESTART and len(steps) == len(set(steps)) == sum(map(len, STEPS.values())) + 1
    assert plan(SERVERS, runs=False) == steps[:-1]
    # The gateway reads the key of its tokens again by itself: no stream is cut for it.
    assert plan((GATEWAY,), runs=True) == (Step.TOKEN_KEY,) and started_again((GATEWAY,)) == ()


def test_the_agent_is_back_before_the_detector_listens_again() -> None:
    order = started_again(SERVERS)
    assert order[:2] == ("kafka", "agent") and "detector" in order


@pytest.mark.parametrize("then", ["rotate", "another", "up"])
@pytest.mark.parametrize("server", [STORE, SQL, GATEWAY, SIGNING])
def test_wherever_it_is_cut_all_are_let_in_and_the_next_finishes_it(machine: Machine, server: str, then: str) -> None:
    machine.rotate(servers=(server,))
    steps = machine.steps
    for last_step in range(1, steps + 1):
        token = token_key(machine.folder).read_text()
        with pytest.raises(CutShortError):
            machine.rotate(last_step, (server,))
        machine.let_in_everywhere()
        assert token in {*of_before(machine.folder), token_key(machine.folder).read_text()}
        machine.last_step = 0
        if then == "up":
            machine.up()
        else:
            machine.rotate(servers=(server,) if then == "rotate" else (GATEWAY,))
        assert machine.sound and not [each for each in warnings(machine.folder.root, 0) if "cut short" in each], f"{last_step} of {steps}"
        machine.let_in_everywhere()
        machine.go_by_the_files()
        rotation.retire(machine.folder.root, say=lambda _: None)
        machine.let_in_everywhere()


@pytest.mark.parametrize("then", ["rotate", "another", "up"])
@pytest.mark.parametrize("step", list(Step), ids=[step.name for step in Step])
def test_a_whole_one_that_is_cut_between_two_steps_is_finished(
    machine: Machine, step: Step, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = rotation.Rotation._do

    def cut(self: rotation.Rotation, next_step: Step, servers: tuple[str, ...]) -> None:
        if next_step is step:
            raise CutShortError
        does(self, next_step, servers)

    with monkeypatch.context() as patched:
        patched.setattr(rotation.Rotation, "_do", cut)
        with pytest.raises(CutShortError):
            machine.rotate(servers=SERVERS)
    machine.let_in_everywhere()
    assert any("cut short" in each for each in warnings(machine.folder.root, 0))
    with pytest.raises(rotation.HalfRotatedError):
        rotation.retire(machine.folder.root, say=lambda _: None)
    if then == "up":
        machine.up()
    else:
        machine.rotate(servers=SERVERS if then == "rotate" else (SIGNING,))
    assert machine.sound
    machine.go_by_the_files()


def test_one_that_is_cut_with_the_last_key_that_is_kept_is_finished_too(machine: Machine) -> None:
    """Else the one would ask for `retire` first, and `retire` for the other."""
    for _ in range(rotation.MAX_OF_BEFORE - 1):
        machine.rotate(servers=(GATEWAY,))
    with pytest.raises(CutShortError):
        machine.rotate(machine.steps, (GATEWAY,))
    assert len(of_before(machine.folder)) == rotation.MAX_OF_BEFORE
    machine.rotate(servers=(GATEWAY,))
    assert machine.sound
    rotation.retire(machine.folder.root, (GATEWAY,), say=lambda _: None)
    machine.rotate(servers=(GATEWAY,))


def test_so_many_keys_of_before_are_kept_and_no_more(machine: Machine) -> None:
    for _ in range(rotation.MAX_OF_BEFORE):
        machine.rotate(servers=(STORE, GATEWAY))
    assert len(client_config.old_keys(machine.folder)) == rotation.MAX_OF_BEFORE
    with pytest.raises(TooManyKeptError, match="retire"):
        machine.rotate(servers=(STORE, GATEWAY))
    rotation.retire(machine.folder.root, (STORE,), say=lambda _: None)
    assert client_config.old_keys(machine.folder) == () and len(of_before(machine.folder)) == rotation.MAX_OF_BEFORE
    rotation.retire(machine.folder.root, (GATEWAY,), say=lambda _: None)
    machine.rotate(servers=(STORE, GATEWAY))
