"""Nodes that go away under a job, on the shared stack: it saves, moves, waits, goes on, and loses neither a step nor a restart."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import PACED_GPT, Pool
from tests.support.waiting import until
from trainhouse.events import JobState

pytestmark = pytest.mark.stack


def test_a_job_moves_off_a_node_by_notice_and_outlives_the_sigterm_of_its_agents(stack: LiveStack, tmp_path: Path) -> None:
    name = f"leave-{secrets.token_hex(3)}"
    stack.ok("pool", "create", name)
    nodes = (f"{name}-a", f"{name}-b")
    pool = Pool(name, nodes, stack, stack.client(), tmp_path, [])
    with agents(stack, name, tmp_path, *nodes, SHUTDOWN_GRACE_S="300"):
        job = pool.submit("leaves", PACED_GPT, 2)
        until(job.seen, str(job))
        first = job.trains(2, beyond=1).allocation[0].node_id
        (tmp_path / first / "notice").write_text("600 the rack is moved")
        moved = job.until(lambda s: s.state is JobState.RUNNING and s.allocation[0].node_id != first and (s.step or 0) > 0)
        assert moved.allocation[0].node_id in nodes and int(moved.attempt) == 1
        (tmp_path / first / "notice").unlink()
        job.trains(2, beyond=int(moved.step or 0))
    waits = job.until(lambda s: s.state is JobState.PENDING)
    assert int(waits.attempt) == 2 and not waits.allocation
    with agents(stack, name, tmp_path, *nodes):
        job.succeeds()
        begun = pool.every_step_once(job)
        assert len(begun) == 3 and pool.resumed_from(job) == [step for step, _ in begun[1:]]
    assert pool.states(job).count("PREEMPTED") == 2
