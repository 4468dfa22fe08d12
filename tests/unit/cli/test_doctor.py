"""Findings of `trainhouse doctor`: each fault says what, where and what to do, and sets the exit code."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhouse.cli.doctor import findings, machine_checks
from trainhouse.cli.doctor.findings import GIB, Verdict
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import Exit

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
        assert not machine_checks.is_free(server.getsockname()[1])


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
