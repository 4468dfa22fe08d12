"""A node's self test: each check passes on a healthy machine and fails on what is wrong; a test that hangs or dies is told all the same."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.events import DeviceHealth, NodeProbeAsked, NodeProbed
from trainhouse.workers.agent.probe import checks as probe_checks
from trainhouse.workers.agent.probe import device_checks
from trainhouse.workers.agent.probe.checks import MIB, CheckFailedError
from trainhouse.workers.agent.probe.child import checks
from trainhouse.workers.agent.probe.prober import CHILD, MAX_CHECKS, ProbePlan, Prober, checks_of, how_it_ended

ASKED = NodeProbeAsked(node_id="n1", boot_id="b", pool="p", probe=3, at_ms=1)


def probe(folder: Path, environment: dict[str, str] | None = None, timeout_s: float = 120.0, **more: object) -> NodeProbed:
    plan = ProbePlan("n1", str(folder), "127.0.0.1", **{k: v for k, v in more.items() if k != "child"})  # type: ignore[arg-type]
    return Prober(plan, environment or {}, lambda: 7, timeout_s, str(more.get("child", CHILD))).run(ASKED)


def test_a_healthy_machine_passes_keeps_nothing_and_a_device_that_is_not_there_fails_alone(tmp_path: Path) -> None:
    told = probe(tmp_path, devices=("GPU-absent",))
    assert not told.passed and [c.name for c in told.checks] == ["network", "disk", "memory", "processors", "device-0"]
    assert all(c.passed and c.found for c in told.checks[:-1]), told.checks
    assert not told.checks[-1].passed and "not GPU-absent" in told.checks[-1].found
    assert (told.node_id, told.boot_id, told.pool, told.probe, told.at_ms) == ("n1", "b", "p", 3, 7)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe_checks.disk(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("body", "timeout_s", "says"),
    [
        ('print(\'{"begin": "memory"}\', flush=True); import time; time.sleep(600)', 2.0, ("memory", "not done after 2 s")),
        ('print(\'{"begin": "device-1"}\', flush=True); import os; os.kill(os.getpid(), 11)', 60.0, ("device-1", "SIGSEGV")),
        (
            'print(\'{"begin": "device-0"}\', flush=True); import subprocess, time; '
            'subprocess.Popen(["sleep", "70"], start_new_session=True); time.sleep(600)',  # it keeps the output open
            2.0,
            ("device-0", "not done after 2 s"),
        ),
        ("raise SystemExit('no library')", 60.0, ("start", "no library")),
        ('print(\'{"begin": "disk"}\')', 60.0, ("disk", "before it was done")),
    ],
)
def test_a_test_that_hangs_or_dies_fails_at_its_check(tmp_path: Path, body: str, timeout_s: float, says: tuple[str, str]) -> None:
    (tmp_path / "child_of_a_test.py").write_text(body)
    began_s = time.monotonic()
    told = probe(tmp_path, {"PYTHONPATH": str(tmp_path)}, timeout_s, child="child_of_a_test")
    assert not told.passed and told.checks[-1].name == says[0] and says[1] in told.checks[-1].found, told.checks
    assert time.monotonic() - began_s < 60


def test_a_closed_prober_ends_what_runs(tmp_path: Path) -> None:
    (tmp_path / "child_of_a_test.py").write_text("import time; time.sleep(600)")
    prober = Prober(ProbePlan("n1", str(tmp_path), "x"), {"PYTHONPATH": str(tmp_path)}, lambda: 0, 600.0, "child_of_a_test")
    prober.close()
    assert "SIGKILL" in prober.run(ASKED).checks[-1].found


def test_a_prober_whose_test_is_over_signals_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child_of_a_test.py").write_text("")
    prober = Prober(ProbePlan("n1", str(tmp_path), "x"), {"PYTHONPATH": str(tmp_path)}, lambda: 0, 600.0, "child_of_a_test")
    prober.run(ASKED)
    signalled: list[object] = []
    monkeypatch.setattr(os, "killpg", lambda *of: signalled.append(of))
    prober.close()
    assert signalled == []


@given(st.lists(st.sampled_from(['{"begin": "a"}', '{"name": "a", "passed": true, "found": ""}', '{"done": true}', "{", "null", "x"])))
def test_only_a_test_that_came_to_its_end_passes(lines: list[str]) -> None:
    checks = checks_of("\n".join(lines), "")
    assert all(c.passed for c in checks) == ('{"done": true}' in lines)
    assert not all(c.passed for c in checks_of("\n".join(lines), "it was ended"))
    assert len(checks_of("\n".join(lines * 200), "")) <= MAX_CHECKS


def test_how_it_ended_names_the_signal() -> None:
    assert how_it_ended(0, "") == ""
    assert "SIGSEGV" in how_it_ended(-signal.SIGSEGV, "") and "code 2: why" in how_it_ended(2, " why\n")


def test_memory_that_changes_is_found() -> None:
    block = np.zeros(64, dtype=np.uint64)
    block[9] = 1
    with pytest.raises(CheckFailedError, match="1 words of memory changed, the first at 72"):
        probe_checks._all_equal(block, np.uint64(0))


def test_a_wrong_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.arange
    monkeypatch.setattr(np, "arange", lambda *a, **k: right(*a, **k) + 0.5)
    with pytest.raises(CheckFailedError, match="wrong products on processors"):
        probe_checks.processors()


def test_an_address_of_another_machine_fails() -> None:
    with pytest.raises(OSError):
        probe_checks.network("192.0.2.1")


def test_a_store_that_is_away_fails_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("TRAINHOUSE_S3_ACCESS_KEY", "a")
    monkeypatch.setenv("TRAINHOUSE_S3_SECRET_KEY", "b")
    monkeypatch.setattr(probe_checks, "STORE_DEADLINE_S", 0.2)
    with pytest.raises(CheckpointError):
        probe_checks.store("n1")


@pytest.mark.parametrize("precision", [torch.float32, torch.float16])
def test_products_of_a_device_are_exact(precision: torch.dtype) -> None:
    device_checks.products(torch.device("cpu"), precision, side=256)


def test_a_device_that_computes_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "to", lambda self, **_: self + torch.eye(self.shape[0], dtype=self.dtype))
    with pytest.raises(CheckFailedError, match="numbers of product 0"):
        device_checks.products(torch.device("cpu"), torch.float32, side=16)


def test_a_devices_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    device_checks.device_memory(torch.device("cpu"), 9 * MIB)
    monkeypatch.setattr(torch.Tensor, "fill_", lambda self, _: self.zero_())
    with pytest.raises(CheckFailedError, match="words of the device's memory changed"):
        device_checks.device_memory(torch.device("cpu"), MIB)


def test_counters_of_errors_must_stand_still() -> None:
    def health(corrected: int | None, uncorrected: int | None) -> DeviceHealth:
        return DeviceHealth(device_id="d", ecc_corrected=corrected, ecc_uncorrected=uncorrected)

    assert device_checks.errors_between(None, None) == ""
    assert device_checks.errors_between(health(3, 0), health(3, 0)) == ", ecc_uncorrected 0, ecc_corrected 3"
    assert device_checks.errors_between(health(None, None), health(3, None)) == ", ecc_corrected 3"
    with pytest.raises(CheckFailedError, match="ecc_uncorrected rose from 0 to 1"):
        device_checks.errors_between(health(0, 0), health(0, 1))


def test_of_a_node_in_use_devices_alone_are_tried() -> None:
    plan = ProbePlan("n", "/tmp", "127.0.0.1", ("GPU-a", "GPU-b"), store=True)
    assert [name for name, _ in checks(plan.of(("GPU-b", "GPU-x")))] == ["device-0"]
    assert plan.of(("GPU-b",)).devices == ("GPU-b",) and plan.of(()) == plan
    slots = ProbePlan("n", "/tmp", "127.0.0.1", (), store=True)
    assert [name for name, _ in checks(slots.of(("n-cpu-1",)))] == ["memory", "processors"]
