"""A dataset that another project uses: its job is refused, granted, reads, and loses its access by the grant's end."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit

pytestmark = pytest.mark.stack
# Without a cache each sample is a request of its own, so that the end of a grant shows at the next one.
PROGRAM = """\
import json, os, time
os.environ["TRAINHOUSE_DATA_CACHE_GIB"] = "0"
from trainhouse.workers import Session

session = Session.start()
loader = session.loader("train", batch=2, decode=lambda sample: json.loads(sample["json"])["n"], collate=list)
session.track(loader=loader)
for step in session.steps(1_000_000):
    print("read", next(loader), flush=True)
    time.sleep(0.1)
"""
OPEN = ("RUNNING", "PENDING", "SCHEDULED", "INITIALIZING")


def submitted(stack: LiveStack, folder: Path, project: str, data: dict[str, str]) -> str:
    file = folder / f"{secrets.token_hex(4)}.yaml"
    runtime = {"command": ["python", "-c", PROGRAM]}
    spec = {"project": project, "data": data, "runtime": runtime, "limits": {"restarts": 0}}
    file.write_text(json.dumps(spec))
    return stack.ok("submit", "--no-wait", "--no-code", str(file)).strip()


def status(stack: LiveStack, job_id: str) -> dict[str, Any]:
    done = stack.run("status", job_id, "--json")
    found: dict[str, Any] = json.loads(done.out) if done.code == Exit.OK else {"state": "PENDING"}
    return found


def rejected(stack: LiveStack, job_id: str) -> str:
    found = until(lambda: (s := status(stack, job_id))["state"] not in OPEN and s, f"the refusal of {job_id}")
    assert isinstance(found, dict) and found["state"] == "REJECTED", found
    return str(found["reason"])


def test_a_job_of_another_project_is_refused_granted_reads_and_is_cut_off(stack: LiveStack, tmp_path: Path) -> None:
    word = secrets.token_hex(3)
    name, project = f"lent-{word}", f"vision-{word}"
    (source := tmp_path / "rows.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(200)))
    version = stack.ok("data", "publish", name, str(source), "--version", "1.0.0", "--purpose", "research").split()[0]
    data = {"dataset": f"{name}@1.0.0", "split": "train", "purpose": "research"}
    grant = (f"{name}@1.0.0", "--project", project, "--purpose", "research")
    typo = stack.run("data", "grant", *grant)
    assert typo.code == Exit.REJECTED and f"there is no project {project}" in typo.err
    (declared := tmp_path / "vision.yaml").write_text(json.dumps({"name": project}))
    stack.ok("project", "set", str(declared))

    first = submitted(stack, tmp_path, project, data)
    reason = rejected(stack, first)
    assert f"project {project} holds no grant of {name}@1.0.0 for purpose research" in reason
    assert f"`trainhouse data grant {' '.join(grant)}`" in reason

    for wrong, code, why in (
        ((f"{name}@2.0.0", *grant[1:]), Exit.NOT_FOUND, f"there is no version {name}@2.0.0"),
        ((f"{name}-2", *grant[1:]), Exit.NOT_FOUND, f"there is no dataset {name}-2"),
        ((*grant[:4], "adverts"), Exit.REJECTED, "adverts is none of the purposes"),
        ((grant[0], "--project", "default", *grant[3:]), Exit.REJECTED, "its jobs need no grant"),
    ):
        done = stack.run("data", "grant", *wrong)
        assert done.code == code and why in done.err, done
    none = stack.run("data", "revoke", *grant)
    assert none.code == Exit.REJECTED and "has no grant of" in none.err
    assert f"project {project} may use {version} for research" in stack.ok("data", "grant", *grant, "--reason", "joint work")
    again = stack.run("data", "grant", *grant)
    assert again.code == Exit.OK and "it was granted before" in again.err
    assert f"{name}@1.0.0" in stack.ok("data", "grants", name)

    prepared = f"prepared-{word}"
    preparation = {"source": f"{name}@1.0.0", "purpose": "research", "output": prepared, "job": {"project": project}}
    (file := tmp_path / "prepare.yaml").write_text(json.dumps(preparation))
    stack.ok("data", "prepare", str(file), "--wait")
    [made] = [row for row in stack.run("data", "list", "--json").objects() if row["dataset"] == prepared]
    assert (made["row_count"], made["project"], made["purposes"]) == (200, project, ["research"])

    reads = submitted(stack, tmp_path, project, data)
    until(lambda: "read [" in stack.run("logs", reads).out or status(stack, reads)["state"] not in OPEN, "samples of another project")
    assert status(stack, reads)["state"] == "RUNNING", status(stack, reads)

    stack.ok("data", "revoke", *grant, "--reason", "the paper is out")
    end = until(lambda: (s := status(stack, reads))["state"] not in OPEN and s, "the end of the job")
    assert isinstance(end, dict) and end["state"] == "FAILED", end
    assert f"the grant of {version} to project {project} for purpose research was revoked" in end["reason"], end["reason"]
    assert "there is no dataset" in rejected(stack, submitted(stack, tmp_path, project, data))
    assert [row["revoked"] for row in map(json.loads, stack.ok("data", "grants", name, "--all", "--json").splitlines())] == [True]
    _answers(stack, name, project, version, first)


def _answers(stack: LiveStack, name: str, project: str, version: str, refused_job: str) -> None:
    """In SQL."""
    query = f"SELECT version, project, purpose, revoked, reason, revoked_reason FROM dataset_grants WHERE dataset = '{name}'"
    row = {"version": version, "project": project, "purpose": "research", "revoked": 1}
    row |= {"reason": "joint work", "revoked_reason": "the paper is out"}
    until(lambda: stack.rows(query) == [row], "the grant, revoked, in SQL")
    audit = f"SELECT action, outcome, job_id FROM audit WHERE target LIKE '{name}@%' AND job_id IN ('', '{refused_job}') ORDER BY at"
    wanted = [
        {"action": "use dataset", "outcome": "refused", "job_id": refused_job},
        {"action": "grant dataset", "outcome": "allowed", "job_id": ""},
        {"action": "revoke dataset grant", "outcome": "allowed", "job_id": ""},
    ]
    until(lambda: stack.rows(audit) == wanted, lambda: stack.rows(audit))
