"""Findings of `trainhouse doctor`: each fault says what, where and what to do, and sets the exit code."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhouse.cli.doctor import deployment_checks, findings, machine_checks
from trainhouse.cli.doctor.findings import GIB, Verdict
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import Exit, explain
from trainhouse.client import TrainhouseClient
from trainhouse.client.errors import InvalidSettingsError
from trainhouse.client.sql import SqlEndpoint
from trainhouse.deploy.local.free_ports import is_free
from trainhouse.url_accounts import without_account

POOLS = [
    {"pool": "default", "devices": {"cpu": {"total": 4, "free": 1}, "h100": {"total": 8, "free": 0}}},
    {"pool": "empty", "devices": {}},
]


def spec(pool: str = "default", ranks: int = 1, device_type: str = "any") -> Any:
    return SimpleNamespace(pool=pool, gang=SimpleNamespace(ranks=ranks), resources=SimpleNamespace(device_type=device_type))


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (findings.python_version((3, 12, 1), "/bin/python"), "OK", "3.12.1"),
        (findings.python_version((3, 9, 1), "/bin/python"), "FAULT", "3.11 or newer"),
        (findings.torch_of(None, "No module named 'torch'", 0)[0], "FAULT", "pip install torch"),
        (findings.torch_of({"version": "2.9", "cuda": None, "devices": 0}, "", 8)[-1], "FAULT", "without CUDA"),
        (findings.torch_of({"version": "2.9", "cuda": "12.8", "devices": 0}, "", 8)[-1], "FAULT", "nvidia-smi"),
        (findings.torch_of({"version": "2.9", "cuda": "12.8", "devices": 8}, "", 8)[-1], "OK", "8 devices"),
        (findings.torch_of({"version": "2.9", "cuda": None, "devices": 0}, "", 0)[-1], "OK", "cpu slots"),
        (findings.disk("/data", 9 * GIB), "OK", "9.0 GiB"),
        (findings.disk("/data", GIB), "WARNING", "--data-dir"),
        (findings.memory(GIB), "WARNING", "end other programs"),
        (findings.ports([19_092], 19_090, 19_110), "WARNING", "listen on 19092: `trainhouse up --ports auto`"),
        (findings.ports([], 19_090, 19_110), "OK", "free"),
        (findings.clock(False), "WARNING", "chrony"),
        (findings.clock(True), "OK", "synchronised"),
        (findings.clock_difference(-30.0, "http://g"), "WARNING", "30 s behind that of http://g"),
        (findings.clock_difference(1.2, "http://g"), "OK", "less than 2 s"),
        (findings.topics(["a", "b"], {"a": 4}, "", "k:9"), "FAULT", "k:9 has no topic b"),
        (findings.versions({"1.0": ["scheduler", "intake"]}), "OK", "one release runs (1.0: intake, scheduler)"),
        (findings.versions({"1.0": ["scheduler"], "1.1": ["intake"]}), "WARNING", "trainhouse upgrade status"),
        (findings.room_of(spec(ranks=4), POOLS), "OK", "later: 1 are free now"),
        (findings.room_of(spec(ranks=1, device_type="cpu"), POOLS), "OK", "it can start now"),
        (findings.room_of(spec(ranks=99), POOLS), "FAULT", "needs 99 devices of type any, and pool default has 4 cpu, 8 h100"),
        (findings.room_of(spec(pool="nopool"), POOLS), "FAULT", "there is no pool nopool: name one of default, empty"),
        (findings.room_of(spec(pool="empty"), POOLS), "FAULT", "has no devices"),
    ],
)
def test_a_finding_is_a_sentence(finding: Any, verdict: str, words: str) -> None:
    one = finding[-1] if isinstance(finding, list) else finding
    assert (one.verdict, words in one.text) == (Verdict(verdict), True), one


def test_a_fault_alone_sets_the_exit_code() -> None:
    assert findings.exit_of([findings.ok("m", "s", "t"), findings.warning("m", "s", "t")]) is Exit.OK
    assert findings.exit_of([findings.ok("m", "s", "t"), findings.fault("m", "s", "t")]) is Exit.FAILED


def test_partitions_that_differ_are_a_fault_beside_topics_that_are_there() -> None:
    found = findings.topics(["a"], {"a": 4}, "the topics differ", "k:9")
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.FAULT]


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_this_machine_without_a_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR", "TRAINHOUSE_GATEWAY_URL", "TRAINHOUSE_KAFKA_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(build("doctor"), ["doctor", "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["subject"] for row in rows} == {"python", "torch", "cuda", "disk", "memory", "ports", "clock", "settings"}, done.output
    assert {row["subject"]: row["verdict"] for row in rows}["settings"] == "WARNING"
    assert done.exit_code == 0, rows
    named = CliRunner().invoke(build("doctor"), ["doctor", "--data-dir", str(tmp_path / "none")])
    assert named.exit_code == 1 and "FAULT    deployment settings:" in named.stdout


@pytest.fixture
def by_gateway_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "DATA_DIR", "GATEWAY_CA", "GATEWAY_TOKEN", "GATEWAY_URL", "KAFKA_BOOTSTRAP"):
        monkeypatch.delenv(f"TRAINHOUSE_{name}", raising=False)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_TOKEN", "a-token")
    return monkeypatch


@contextmanager
def server_of(date: str) -> Iterator[str]:
    """The URL of a server whose answers have a date."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def deployment_of(url: str, monkeypatch: pytest.MonkeyPatch) -> list[findings.Finding]:
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", url)
    return list(deployment_checks.deployment())


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://[::1", "127.0.0.1:8000", "http://a..b:80"])
def test_an_address_that_is_none_is_a_fault(url: str, by_gateway_alone: pytest.MonkeyPatch) -> None:
    found = deployment_of(url, by_gateway_alone)
    assert {(each.subject, each.verdict) for each in found} == {("gateway", Verdict.FAULT)} and url in found[0].text


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://[::1"])
def test_the_client_says_that_an_address_is_none(url: str, by_gateway_alone: pytest.MonkeyPatch) -> None:
    by_gateway_alone.setenv("TRAINHOUSE_GATEWAY_URL", url)
    with pytest.raises(InvalidSettingsError, match="TRAINHOUSE_GATEWAY_URL is"):
        TrainhouseClient.from_settings()
    with pytest.raises(InvalidSettingsError, match="TRAINHOUSE_CLICKHOUSE_URL is"):
        SqlEndpoint(url).table("SELECT 1")


def test_an_address_of_the_store_that_is_none_is_a_fault(by_gateway_alone: pytest.MonkeyPatch) -> None:
    by_gateway_alone.setenv("TRAINHOUSE_S3_ENDPOINT", "http://ana:SECRET@127.0.0.1:abc")  # pragma: allowlist secret
    (found,) = deployment_checks._tried("store", deployment_checks._store)
    assert found.verdict is Verdict.FAULT and "127.0.0.1:abc" in found.text and "SECRET" not in found.text


def test_an_authority_that_cannot_be_read_is_a_fault(by_gateway_alone: pytest.MonkeyPatch) -> None:
    by_gateway_alone.setenv("TRAINHOUSE_GATEWAY_CA", "none.pem")
    found = deployment_of("https://127.0.0.1:9", by_gateway_alone)
    assert [each.subject for each in found if "TRAINHOUSE_GATEWAY_CA is none.pem" in each.text] == ["gateway"]


@pytest.mark.parametrize("date", ["soon", "Mon, 99 Jan 2026 00:00:00 GMT"])
def test_a_date_that_is_none_is_a_warning(date: str, by_gateway_alone: pytest.MonkeyPatch) -> None:
    with server_of(date) as url:
        found = deployment_of(url, by_gateway_alone)
    (clock,) = [each for each in found if each.subject == "clock"]
    assert clock.verdict is Verdict.WARNING and repr(date) in clock.text


def test_a_token_that_is_missing_is_the_gateways(by_gateway_alone: pytest.MonkeyPatch) -> None:
    by_gateway_alone.delenv("TRAINHOUSE_GATEWAY_TOKEN")
    with server_of("Fri, 27 Nov 2026 07:00:00 GMT") as url:
        found = deployment_of(url, by_gateway_alone)
    assert [each.subject for each in found if "needs a token" in each.text] == ["gateway"]
    assert "clickhouse" not in {each.subject for each in found}


@pytest.mark.parametrize("token", ["a-token", ""])
def test_no_password_of_an_address_is_shown(token: str, by_gateway_alone: pytest.MonkeyPatch) -> None:
    by_gateway_alone.setenv("TRAINHOUSE_GATEWAY_TOKEN", token)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = deployment_of(f"http://ana:SECRET@127.0.0.1:{port}", by_gateway_alone)  # pragma: allowlist secret
    text = "\n".join(each.text for each in found)
    assert f"http://127.0.0.1:{port}" in text and "SECRET" not in text and "ana" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://ana:SECRET@h:1/x and s3://b:S@c/k", "at http://h:1/x and s3://c/k"),  # pragma: allowlist secret
        ("'https://ana:p@ss@h'", "'https://h'"),  # pragma: allowlist secret
        ("'https://ana:p/a?s#s@h:9'", "'https://h:9'"),  # pragma: allowlist secret
        ("https://token@h", "https://h"),
        ("http://h:8000/a@b http://[::1]:8000/a@b s3://bucket/key@1, ana@example.org", None),
    ],
)
def test_an_account_is_taken_out_of_each_address(text: str, shown: str | None) -> None:
    assert without_account(text) == (text if shown is None else shown)


def test_an_error_of_any_command_shows_no_account() -> None:
    error = explain(InvalidSettingsError("http://ana:SECRET@h is away"))  # pragma: allowlist secret
    assert str(error) == "http://h is away"


def test_no_code_of_the_current_folder_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "torch"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    machine_checks.torch_report()
    assert not (tmp_path / "ran").exists()
