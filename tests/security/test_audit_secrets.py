"""Secrets are in the audit: who set, listed, granted or removed which, and which a launch resolved, for which job and node; no values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhouse.cli.main import build
from trainhouse.cli.stack import secret as commands
from trainhouse.cli.stack import secret_audit
from trainhouse.cli.stack.secret_audit import UNSENT
from trainhouse.events import Envelope, GangAllocated, JobSpec, NodeAccess, NodePlacement, decode
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.node_audit import Outcome
from trainhouse.events.model.secret_names import SecretName
from trainhouse.workers.agent.accesses import NodeAudit
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.secretfiles import SecretFiles, runtime_folder
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.store import SecretStore

VALUE = "value-of-vision-8471"


@pytest.fixture
def told() -> list[NodeAccess]:
    return []


@pytest.fixture
def files(tmp_path: Path, told: list[NodeAccess]) -> Iterator[SecretFiles]:
    try:
        runtime_folder(None)
    except NotLaunchableError as error:
        pytest.skip(str(error))
    store = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    store.put(SecretRecord(SecretName("vision", "HUB_TOKEN"), VALUE.encode(), grants=("speech",)))
    made = SecretFiles(store, tmp_path / "agent", audit=NodeAudit("n", told.append, lambda: 1))
    yield made
    made.sweep(())
    made.root().rmdir() if made.root().is_dir() else None


def gang(project: str, *secrets: str) -> GangAllocated:
    spec = JobSpec.model_validate({"project": project, "user": "ana", "secrets": secrets, "runtime": {"command": ["python"]}})
    place = NodePlacement(node_id="n", boot_id="b", address="127.0.0.1", first_rank=0, devices=("d",))
    ids = {"job_id": "j", "attempt": 2, "epoch": 3, "pool": "default", "spec": spec, "spec_sha256": spec.sha256()}
    return GangAllocated.model_validate({**ids, "placements": (place,), "master_address": "127.0.0.1", "master_port": 1})


def test_a_launch_tells_which_secrets_for_which_job_on_which_node(files: SecretFiles, told: list[NodeAccess]) -> None:
    files.hand_out(gang("speech", "vision/HUB_TOKEN"))
    (only,) = told
    assert (only.outcome, only.access, only.action) == (Outcome.GRANTED, "secret", "secrets launch")
    assert (only.node_id, only.job_id, only.attempt, only.project, only.sub) == ("n", "j", 2, "speech", "ana")
    assert only.text == "vision/HUB_TOKEN (kept, granted to speech)" and VALUE not in only.model_dump_json()


@pytest.mark.parametrize(("project", "wanted", "why"), [("other", "vision/HUB_TOKEN", "not granted to"), ("other", "GONE", "not set")])
def test_a_launch_that_may_not_have_one_is_told_as_refused(
    files: SecretFiles, told: list[NodeAccess], project: str, wanted: str, why: str
) -> None:
    with pytest.raises(NotLaunchableError):
        files.hand_out(gang(project, wanted))
    (only,) = told
    assert only.outcome is Outcome.REFUSED and why in only.reason and wanted in only.text and only.project == project


def test_a_rotated_value_is_told_once_and_one_that_stayed_is_not(files: SecretFiles, told: list[NodeAccess]) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    files.hand_out(allocation)
    assert files.refresh([allocation]) == 0 and len(told) == 1
    files.store.put(SecretRecord(SecretName("vision", "HUB_TOKEN"), b"another-8472"))
    assert files.refresh([allocation]) == 1
    assert [t.action for t in told] == ["secrets launch", "secrets refresh"] and "8472" not in told[1].model_dump_json()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("TRAINHOUSE_AGENT_DIR", str(tmp_path / "agent"))
    monkeypatch.setenv("TRAINHOUSE_AGENT_NODE_ID", "n9")
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(commands, "inform", lambda *_: None)  # what the control plane is told has tests of its own

    def away(waiting: list[Envelope], folder: Path) -> None:
        raise BusUnavailableError("the brokers are away")

    monkeypatch.setattr(secret_audit, "_send", away)
    return CliRunner()


def kept(tmp_path: Path) -> list[NodeAccess]:
    lines = (tmp_path / "secrets" / UNSENT).read_bytes().splitlines()
    return [event for line in lines if isinstance(event := decode(line).event, NodeAccess)]


def test_each_command_is_told_allowed_or_refused_and_waits_on_disk_while_brokers_are_away(cli: CliRunner, tmp_path: Path) -> None:
    assert cli.invoke(build(), ["secrets", "set", "vision/HUB_TOKEN"], input=VALUE).exit_code == 0
    assert cli.invoke(build(), ["secrets", "grant", "vision/HUB_TOKEN", "--to", "speech"]).exit_code == 0
    assert cli.invoke(build(), ["secrets", "list"]).exit_code == 0
    assert cli.invoke(build(), ["secrets", "remove", "vision/NONE"]).exit_code != 0
    assert cli.invoke(build(), ["secrets", "set", "vision/EMPTY"], input="").exit_code != 0
    assert cli.invoke(build(), ["secrets", "rotate-key"]).exit_code == 0
    assert cli.invoke(build(), ["secrets", "remove", "vision/HUB_TOKEN"]).exit_code == 0
    found = kept(tmp_path)
    assert [(f.action.split()[1], f.outcome.value, f.target) for f in found] == [
        ("set", "granted", "vision/HUB_TOKEN"),
        ("grant", "granted", "vision/HUB_TOKEN"),
        ("list", "granted", "*"),
        ("remove", "refused", "vision/NONE"),
        ("set", "refused", "vision/EMPTY"),
        ("rotate-key", "granted", "*"),
        ("remove", "granted", "vision/HUB_TOKEN"),
    ]
    assert found[1].text == "projects speech" and "there is no secret vision/NONE" in found[3].reason
    assert all(f.sub and f.node_id == "n9" and f"uid {os.getuid()}" in f.reason for f in found if f.outcome is Outcome.GRANTED)
    assert (tmp_path / "secrets" / UNSENT).stat().st_mode & 0o777 == 0o600
    assert VALUE.encode() not in (tmp_path / "secrets" / UNSENT).read_bytes()


def test_what_waited_goes_with_the_next_command_and_is_then_gone(cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.invoke(build(), ["secrets", "set", "A"], input=VALUE)
    sent: list[Envelope] = []
    monkeypatch.setattr(secret_audit, "_send", lambda waiting, folder: sent.extend(waiting))
    cli.invoke(build(), ["secrets", "list"])
    assert [e.event.action for e in sent] == ["secrets set", "secrets list"]  # type: ignore[attr-defined]
    assert (tmp_path / "secrets" / UNSENT).read_bytes() == b""


def test_a_line_that_was_cut_off_takes_no_other_with_it(cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk was full in the middle of a line: that change was not made, the next one was."""
    cli.invoke(build(), ["secrets", "set", "A"], input=VALUE)
    with (tmp_path / "secrets" / UNSENT).open("ab") as waits:
        waits.write(b'{"specversion":"1.0","id":"cut o')
    sent: list[Envelope] = []
    cli.invoke(build(), ["secrets", "set", "B"], input=VALUE)
    monkeypatch.setattr(secret_audit, "_send", lambda waiting, folder: sent.extend(waiting))
    cli.invoke(build(), ["secrets", "list"])
    assert [e.event.target for e in sent] == ["A", "B", "*"]  # type: ignore[attr-defined]


def test_a_change_that_cannot_be_told_is_not_made(cli: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "secrets" / UNSENT).mkdir()
    found = cli.invoke(build(), ["secrets", "set", "A"], input=VALUE)
    assert found.exit_code != 0
    assert SecretStore(tmp_path / "secrets", tmp_path / "secrets.key").names() == []
