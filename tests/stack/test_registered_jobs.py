"""A job whose spec names a model, on the shared stack: registered when it succeeds, evaluated, compared, promoted; and what is refused."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.blocks import ROOT, blocks_of
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.stack
OURS = secrets.token_hex(3)
MODEL, POINTS = f"signs-{OURS}", f"points-{OURS}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of docs/howto/models.md, under names of this test's own."""
    made: Path = tmp_path_factory.mktemp("signs")
    for block in blocks_of(ROOT / "docs" / "howto" / "models.md"):
        if block.title:
            text = block.text.replace("points@1.0.0", f"{POINTS}@1.0.0").replace("register: signs", f"register: {MODEL}")
            (made / block.title).write_text(text)
    return made


def versions(stack: LiveStack) -> list[dict[str, Any]]:
    done = stack.run("models", "show", MODEL, "--json")
    return done.objects() if done.code == 0 else []


def test_a_job_becomes_the_champion_by_what_was_measured(stack: LiveStack, folder: Path) -> None:
    import subprocess
    import sys

    rows = subprocess.run([sys.executable, "points.py"], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / "rows.jsonl").write_text(rows)
    published = stack.ok("data", "publish", POINTS, str(folder / "rows.jsonl"), "--split", "train=0.5,test=0.5", "--version", "1.0.0")
    dataset = published.split()[0]
    stack.ok("submit", str(folder / "job.yaml"), "--code", str(folder), "--wait", cwd=folder, timeout_s=PATIENCE_S)
    until(lambda: versions(stack), "the version of the job")
    [first] = versions(stack)
    assert first["data"] == [dataset] and first["splits"] == [f"{dataset}/train"] and not first["missing"]
    assert first["code_sha256"] and first["registered_by"] == first["trained_by"]

    evaluating = ("models", "evaluate", f"{MODEL}@1", "--spec", "accuracy.yaml", "--data", f"{POINTS}@1.0.0")
    assert "of suite signs recorded" in stack.ok(*evaluating, cwd=folder, timeout_s=PATIENCE_S)
    stack.ok("models", "gate", "apply", MODEL, str(folder / "signs-gate.yaml"))
    stack.ok("models", "promote", MODEL, "1")

    stack.ok("submit", str(folder / "job.yaml"), "--code", str(folder), "-p", "steps=200", "--wait", cwd=folder, timeout_s=PATIENCE_S)
    until(lambda: len(versions(stack)) == 2, "the second version")
    refused = stack.run("models", "promote", MODEL, "2")
    assert refused.code == 3 and "no result of suite signs" in refused.err
    stack.ok("models", "evaluate", f"{MODEL}@2", *evaluating[3:], cwd=folder, timeout_s=PATIENCE_S)
    refused = stack.run("models", "promote", MODEL, "2")
    assert refused.code == 3, "it is not compared with the champion yet"
    compared = stack.ok("models", "compare", f"{MODEL}@2", timeout_s=PATIENCE_S)
    assert re.search(r"^accuracy .*(better|not worse)$", compared, re.MULTILINE), compared
    assert "was recorded before" in stack.ok("models", "compare", f"{MODEL}@2", timeout_s=PATIENCE_S)
    stack.ok("models", "promote", MODEL, "2")
    sql = f"SELECT count() AS n FROM model_evaluations WHERE model = '{MODEL}' AND metric = 'accuracy'"
    until(lambda: stack.rows(sql) == [{"n": 2}], "both results in the tables")


def test_a_job_without_a_checkpoint_shows_a_refusal_and_bad_names_are_refused_at_once(stack: LiveStack, tmp_path: Path) -> None:
    model = f"none-{OURS}"
    stack.ok("submit", "--no-code", "--wait", "--register", model, "--", "python", "-c", "pass", timeout_s=PATIENCE_S)

    def refusal() -> list[dict[str, Any]]:
        done = stack.run("models", "history", model, "--json")
        return done.objects() if done.code == 0 else []

    until(refusal, "the registry's refusal")
    [refused] = refusal()
    assert refused["type"] == "trainhouse.model.request-refused.v1" and "checkpoint" in refused["reason"], json.dumps(refused)
    named = stack.run("submit", "--no-code", "--register", "vision/none", "--", "python", "-c", "pass")
    assert named.code == 2 and "names no model of the job's project" in named.err
