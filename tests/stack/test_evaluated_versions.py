"""Versions that their gate has evaluated by jobs, on the shared stack: by hand, by their registration, and where the job cannot run."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documentation.blocks import ROOT, blocks_of
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.stack
OURS = secrets.token_hex(3)
MODEL, POINTS = f"gated-{OURS}", f"gated-points-{OURS}"
EVALUATION = {
    "suite": "signs",
    "kind": "classification",
    "model": "model.safetensors",
    "program": "signs",
    "dataset": f"{POINTS}@1.0.0",
    "split": "test",
    "seed": 3,
    "batch_size": 64,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, stack: LiveStack) -> Path:
    """The files of docs/howto/models.md, under names of this test's own, and the data, which is published."""
    made: Path = tmp_path_factory.mktemp("signs")
    for block in blocks_of(ROOT / "docs" / "howto" / "models.md"):
        if block.title:
            text = block.text.replace("points@1.0.0", f"{POINTS}@1.0.0").replace("register: signs", f"register: {MODEL}")
            (made / block.title).write_text(text)
    rows = subprocess.run([sys.executable, "points.py"], cwd=made, capture_output=True, text=True, check=True).stdout
    (made / "rows.jsonl").write_text(rows)
    stack.ok("data", "publish", POINTS, str(made / "rows.jsonl"), "--split", "train=0.5,test=0.5", "--version", "1.0.0")
    return made


def versions(stack: LiveStack) -> list[dict[str, Any]]:
    done = stack.run("models", "show", MODEL, "--json")
    return done.objects() if done.code == 0 else []


def train(stack: LiveStack, folder: Path, steps: int, count: int) -> None:
    """A job whose checkpoint becomes the model's next version."""
    spec = str(folder / "job.yaml")
    stack.ok("submit", spec, "--code", str(folder), "-p", f"steps={steps}", "--wait", cwd=folder, timeout_s=PATIENCE_S)
    until(lambda: len(versions(stack)) == count, f"version {count}")


def apply(stack: LiveStack, folder: Path, **changes: Any) -> None:
    gate = {
        "approvals": 0,
        "suites": [{"suite": "signs", "split": "test", "metrics": {"accuracy": {"at_least": 0.3}}}],
        "evaluate": [EVALUATION | changes],
    }
    (folder / "evaluated-gate.yaml").write_text(yaml.safe_dump(gate))
    stack.ok("models", "gate", "apply", MODEL, str(folder / "evaluated-gate.yaml"), "--code", str(folder), "--reason", "by itself")


def jobs(stack: LiveStack, version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = versions(stack)[version - 1]["evaluation_jobs"]
    return found


def test_a_version_is_evaluated_by_a_job_of_its_gate_by_hand_and_by_its_registration(stack: LiveStack, folder: Path) -> None:
    train(stack, folder, 3, 1)
    apply(stack, folder)
    submitted = stack.ok("models", "evaluate", f"{MODEL}@1", "--submit")
    [job] = jobs(stack, 1)
    assert f"job {job['job_id']} evaluates it by suite signs" in submitted
    assert job["job_id"] in stack.ok("models", "show", MODEL)
    until(lambda: jobs(stack, 1)[0]["evaluation_id"] or jobs(stack, 1)[0]["reason"], "the end of the job")
    assert not jobs(stack, 1)[0]["reason"]
    stack.ok("models", "why", MODEL, "1")
    again = stack.run("models", "evaluate", f"{MODEL}@1", "--submit")
    assert again.code == 3 and "has evaluated it so" in again.err

    train(stack, folder, 200, 2)
    [second] = jobs(stack, 2)
    until(lambda: jobs(stack, 2)[0]["evaluation_id"] or jobs(stack, 2)[0]["reason"], "the end of the second job")
    assert not jobs(stack, 2)[0]["reason"]
    stack.ok("models", "promote", MODEL, "2")
    [status] = stack.run("status", second["job_id"], "--json").objects()
    assert status["state"] == "SUCCEEDED" and status["user"] == versions(stack)[1]["registered_by"]
    sql = f"SELECT count() AS n FROM model_evaluations WHERE model = '{MODEL}' AND metric = 'accuracy'"
    until(lambda: stack.rows(sql) == [{"n": 2}], "both results in the tables")
    here = ("models", "evaluate", f"{MODEL}@2", "--spec", "accuracy.yaml", "--data", f"{POINTS}@1.0.0", "--json")
    figures = stack.run(*here, cwd=folder, timeout_s=PATIENCE_S).objects()[0]["metrics"]
    assert figures["accuracy"]["value"] == versions(stack)[1]["metrics"]["signs"]["accuracy"], "a run by hand gives the same"


def test_a_job_that_cannot_run_says_so_with_its_id_and_the_version_stays_out(stack: LiveStack, folder: Path) -> None:
    if not versions(stack):
        train(stack, folder, 3, 1)
    apply(stack, folder, suite="nowhere", pool="no-such-pool")
    stack.ok("models", "evaluate", f"{MODEL}@1", "--submit")
    until(lambda: jobs(stack, 1)[-1]["reason"], "the refusal of the job")
    job = jobs(stack, 1)[-1]
    assert "REJECTED" in job["reason"] and "no-such-pool" in job["reason"]
    shown = stack.run("models", "why", MODEL, "1").out
    assert job["job_id"] in shown and "no-such-pool" in shown
