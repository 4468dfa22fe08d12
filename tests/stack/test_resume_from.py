"""A job begins from another one's checkpoint, by each way to name it and through each door."""

from __future__ import annotations

import secrets
from typing import Any

import httpx
import pytest

from tests.stack.test_gateway import client as client
from tests.stack.test_gateway import told as told
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack
PROGRAM = ("python", "-m", "trainhouse.workers.examples.gpt", "--width", "64", "--checkpoint-every", "10", "--steps")


def restored(stack: LiveStack, job: str) -> list[tuple[int, int]]:
    """(commit, step) of what a job began from."""
    query = f"SELECT commit, step FROM checkpoint_facts FINAL WHERE job_id = '{job}' AND fact = 'restored'"
    return [(row["commit"], row["step"]) for row in stack.rows(query)]


def test_each_name_of_a_checkpoint_through_each_door(stack: LiveStack, client: httpx.Client) -> None:
    source = f"source-{secrets.token_hex(3)}"
    stack.ok("submit", "--no-code", "--wait", "--id", source, "--", *PROGRAM, "30")
    commits = {int(row["commit"]): row["step"] for row in checkpoints(stack, source)}
    assert sorted(commits.values()) == [10, 20, 30], commits
    first = min(commits)
    begun: dict[str, tuple[int, int] | None] = {}
    for text, wanted in (
        (f"{source}@{first + 1}", (first + 1, commits[first + 1])),
        (f"{source}@step:10", (first, 10)),
        (source, (first + 2, 30)),
        (f"{source}@best", None),
    ):
        job = f"heir-{secrets.token_hex(3)}"
        stack.ok("submit", "--no-code", "--wait", "--id", job, "--resume-from", text, "--", *PROGRAM, "40")
        begun[job] = wanted
    asked = client.post(f"/v1/training-jobs/{source}/checkpoints/20/restore")
    assert asked.status_code == 202, asked.text
    begun[asked.json()["job_id"]] = (first + 1, 20)
    for job, wanted in begun.items():
        found = until(lambda job=job: restored(stack, job), f"what {job} began from")  # type: ignore[misc]
        assert found == [wanted] if wanted is not None else (len(found) == 1 and found[0][0] in commits), (job, found)
    for bad in (f"{source}/commit/1", f"{source}@step:x", f"{source}@newest"):
        done = stack.run("submit", "--no-code", "--wait", "--resume-from", bad, "--", "python", "-c", "pass")
        assert done.code != 0 and "JOB@step:N" in done.out + done.err, (done.out, done.err)


def checkpoints(stack: LiveStack, job: str) -> list[dict[str, Any]]:
    query = f"SELECT commit, step FROM checkpoint_facts FINAL WHERE job_id = '{job}' AND fact = 'completed' ORDER BY commit"
    return until(lambda: rows if len(rows := stack.rows(query)) == 3 else None, f"three checkpoints of {job}")
