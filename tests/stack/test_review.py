"""A running job is sent to review, leaves its devices, and goes on from its last checkpoint, or is cancelled, when a person says so."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.stack.test_gateway import client as client
from tests.stack.test_gateway import told as told
from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import PACED_GPT, Pool
from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.events import JobState

pytestmark = pytest.mark.stack


@pytest.fixture
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node of two slots."""
    name, folder = f"review-{secrets.token_hex(3)}", tmp_path_factory.mktemp("review")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


def test_a_job_goes_through_a_review_by_the_command_line_and_the_gateway(pool: Pool, client: httpx.Client) -> None:
    job = pool.submit("reviewed", PACED_GPT, 2)
    job.trains(2, beyond=1)
    early = pool.stack.run("review", job.id, "--go-on")
    assert early.code == Exit.REJECTED and "not NEEDS_REVIEW" in early.err, (early.out, early.err)
    assert client.post(f"/v1/training-jobs/{job.id}/review", json={"action": "go_on"}).status_code == 409

    assert "sent to review" in pool.stack.ok("review", job.id, "--send", "--reason", "its loss looks odd")
    rests = job.until(lambda s: s.state is JobState.NEEDS_REVIEW)
    assert rests.last_checkpoint is not None and not rests.allocation and "its loss looks odd" in rests.reason
    other = pool.submit("other", "pass", 2)
    other.succeeds()

    assert "goes on" in pool.stack.ok("review", job.id, "--go-on", "--reason", "it is usual")
    job.trains(2, beyond=rests.last_checkpoint.step)

    path = f"/v1/training-jobs/{job.id}/review"
    assert client.post(path, json={"action": "send", "reason": "once more"}).status_code == 202
    job.until(lambda s: s.state is JobState.NEEDS_REVIEW)
    until(lambda: client.post(path, json={"action": "cancel", "reason": "useless"}).status_code == 202, "the gateway knows of the review")
    assert "useless" in job.until(lambda s: s.state is JobState.CANCELLED).reason
    assert pool.resumed_from(job) == [rests.last_checkpoint.step]
    query = f"SELECT json FROM events WHERE job_id = '{job.id}' AND type = 'trainhouse.job.reviewed.v1' ORDER BY time"
    rows = until(lambda: found if len(found := pool.stack.rows(query)) == 4 else None, "four decisions about the review")
    decided = [json.loads(row["json"]) for row in rows]
    assert [(d["action"], d["reason"]) for d in decided] == [
        ("send", "its loss looks odd"),
        ("go_on", "it is usual"),
        ("send", "once more"),
        ("cancel", "useless"),
    ]
    assert all(d["user"] for d in decided)
    late = pool.stack.run("review", job.id, "--cancel")
    assert late.code == Exit.REJECTED and "CANCELLED" in late.err
