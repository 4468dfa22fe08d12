"""`trainhouse models fetch`, `verify` and `card` against a real object store, with no broker, no table and no gateway to ask."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.support.waiting import until
from trainhouse.checkpointing.chain.retention import Pruner, RetentionPolicy, sweep
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.exchange.export import Format
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.models.fetch import fetch
from trainhouse.checkpointing.models.named_version import find_version, parse_reference
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, append
from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import CliError, Exit, explain
from trainhouse.events.model.resume_ref import parse_resume_from

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
LAYERS = 24
FETCHES = 20
"""Of the hundred that were made once by hand."""


@pytest.fixture(scope="module")
def environment(object_store_endpoint: StoreServer) -> dict[str, str]:
    """Settings of the store; all else that could be asked is at a port that nothing listens on."""
    server = object_store_endpoint
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    return {
        "TRAINHOUSE_S3_ENDPOINT": server.endpoint,
        "TRAINHOUSE_S3_BUCKET": server.bucket,
        "TRAINHOUSE_S3_ACCESS_KEY": server.access_key,
        "TRAINHOUSE_S3_SECRET_KEY": server.secret_key,
        "TRAINHOUSE_KAFKA_BOOTSTRAP": dead,
        "TRAINHOUSE_CLICKHOUSE_URL": f"http://{dead}",
    }


@pytest.fixture(scope="module")
def store(environment: dict[str, str]) -> S3ObjectStore:
    given = {name.removeprefix("TRAINHOUSE_S3_").lower(): value for name, value in environment.items() if "_S3_" in name}
    return S3ObjectStore(StoreSettings.model_validate(given))


@pytest.fixture(autouse=True)
def _settings(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRAINHOUSE_GATEWAY_URL", raising=False)
    monkeypatch.chdir(tmp_path)


def weights(version: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(version)
    return {f"layers.{n}": torch.randn(500, 500, generator=generator) for n in range(LAYERS)}


@pytest.fixture(scope="module")
def model(store: S3ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two versions, the first of which retention of the job has given up; the second is champion."""
    owned(store, "fetched", "default", 0)
    tokenizer = tmp_path_factory.mktemp("files") / "tokenizer.json"
    tokenizer.write_text('{"vocab":{}}')
    at = Checkpointer(CheckpointerSettings("fetched", 1, 0, "spec"), store)
    decision, staged = 0, None
    for version in (1, 2):
        at.save({"model": weights(version), "optimizer": {"m": torch.ones(300_000)}}, {}, version, 1.0, metrics={"loss": 1 / version})
        parts = VersionParts({"tokenizer.json": tokenizer}, licence="mit", framework="torch 2.9")
        prepared = prepare_version(store, "default", parse_resume_from("fetched"), parts)
        before, staged = staged, StagedVersion(version=version, semver=f"1.0.{version}", content=prepared.sha256)
        fields = {"project": "default", "name": "fetched", "subject": staged, "at_ms": 10**12}
        for kind, stages in (("registered", {"champion": before, "staging": staged}), ("promoted", {"champion": staged})):
            decision += 1
            append(store, StageRecord.model_validate({**fields, "decision": decision, "kind": kind, **stages}))
    at.save({"model": weights(3)}, {}, 3, 1.0)
    Pruner(store, "fetched").prune(RetentionPolicy(keep_last=1))
    sweep(store, grace_s=0)
    return "fetched"


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(words[0]), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error = explain(result.exception)
        assert isinstance(error, CliError), result.exception
        return error.code, str(error)
    return result.exit_code, result.output


def same(found: dict[str, torch.Tensor], version: int) -> bool:
    wanted = weights(version)
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_versions_are_fetched_and_named_with_the_store_alone(model: str, tmp_path: Path) -> None:
    for selector, version in (("champion", 2), ("1", 1), ("1.0.1", 1), ("v2", 2)):
        out = tmp_path / f"out-{selector}"
        code, printed = command("models", "fetch", f"{model}@{selector}", str(out))
        assert code == Exit.OK and f"model:{model}@{version}" in printed
        assert same(load_file(out / "model.safetensors"), version) and (out / "tokenizer.json").read_text() == '{"vocab":{}}'
        code, printed = command("models", "verify", str(out))
        assert code == Exit.OK and f"is model:{model}@{version} (1.0.{version})" in printed
        assert command("models", "fetch", f"{model}@{selector}", str(out))[1].endswith("is there already, each file sound\n")
    file = tmp_path / "out-1" / "model.safetensors"
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"\x01")
    code, printed = command("models", "verify", str(file), "--json")
    answer = json.loads(printed)
    assert code == Exit.FAILED and answer["version"] is None and "other values of model.layers" in answer["problems"][1]


def test_what_is_not_there_is_refused_with_what_to_do(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("models", "fetch", f"{model}@staging", str(out)) == (
        Exit.NOT_FOUND,
        f"{model}@staging: the model has no staging; `trainhouse models show {model}` lists versions",
    )
    for words, code in (
        ((f"{model}@7", str(out)), Exit.NOT_FOUND),
        ((model, str(out)), Exit.USAGE),
        (("x@champion", str(out)), Exit.NOT_FOUND),
    ):
        assert command("models", "fetch", *words)[0] == code
    assert command("models", "fetch", f"{model}@1", str(out), "--format", "pickle")[0] == Exit.USAGE
    assert command("models", "verify", str(tmp_path / "nothing"))[0] == Exit.NOT_FOUND
    assert not out.exists()


def test_a_card_is_written_without_tables_and_says_what_is_not_known(model: str, tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    code, printed = command("models", "card", f"{model}@champion", "--out", str(file))
    assert code == Exit.OK and printed == f"the card of model:{model}@2 is in {file}\n"
    file.write_text(file.read_text().replace("Not written yet (not known).", "By people.", 1))
    command("models", "card", f"{model}@champion", "--out", str(file))
    card = ModelCard(file.read_text())
    assert card.data.to_dict()["license"] == "mit" and "By people." in card.text and "evaluations are not known here" in card.text


def test_every_fetch_succeeds_with_the_store_alone(store: S3ObjectStore, model: str, tmp_path: Path) -> None:
    for number in range(FETCHES):
        out = tmp_path / str(number)
        fetch(store, find_version(store, parse_reference(f"{model}@champion")), Format.SAFETENSORS, out)
        assert same(load_file(out / "model.safetensors"), 2)


def test_a_killed_fetch_leaves_nothing_under_its_name_and_the_next_one_goes_on(model: str, tmp_path: Path) -> None:
    """Kills the command at seeded chunks, each of which the record of progress shows."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    drawn = random.Random(seed)
    out = tmp_path / "out"
    progress = tmp_path / ".out.partial" / "progress"

    def chunks() -> int:
        return len([line for line in progress.read_text().split("\n")[1:] if line]) if progress.exists() else 0

    words = [sys.executable, "-m", "trainhouse.cli.main", "models", "fetch", f"{model}@champion", str(out)]
    kills, before = 0, 0
    for _ in range(20):  # a fetch may end before it is killed: another one begins
        at = before + drawn.randint(1, 4)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
            until(lambda at=at, running=running: chunks() >= at or running.poll() is not None, timeout_s=200, every_s=0.002)  # type: ignore[misc]
            running.send_signal(signal.SIGKILL)
        kills += running.returncode == -signal.SIGKILL
        assert chunks() >= before or out.exists()
        before = chunks()
        if kills >= 2:
            break
        if out.exists():
            shutil.rmtree(out)
            before = 0
    assert kills
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert same(load_file(out / "model.safetensors"), 2) and command("models", "verify", str(out))[0] == Exit.OK
    assert not progress.parent.exists()
