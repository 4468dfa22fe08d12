"""A rank that hangs at the same step of every attempt: the job ends after the second, and the stacks of all ranks stay readable."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import Pool
from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.events import JobState

pytestmark = pytest.mark.stack
HANGS_AT = 6
PROGRAM = f"""\
import os, time
from trainhouse.workers.examples import gpt, text
class Hangs(text.Windows):
    def __next__(self):
        self.taken = getattr(self, "taken", 0) + 1
        if os.environ["RANK"] == "1" and self.taken > {HANGS_AT}:
            self.hang_here()
        return super().__next__()
    def hang_here(self):
        while True:
            time.sleep(1)
gpt.Windows = Hangs
gpt.main(["--width", "32", "--layers", "1", "--context", "32", "--batch", "4", "--steps", "50"])
"""
POLICY = """\
name: quick-hangs
failures: {detection: {hang_floor_s: 10, start_limit_s: 90, live_floor_s: 20}}
"""


@pytest.fixture
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one healthy node of two slots that finds hangs quickly."""
    name, folder = f"hangs-{secrets.token_hex(3)}", tmp_path_factory.mktemp("hangs")
    stack.ok("pool", "create", name)
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    stack.ok("policy", "apply", name, str(file))
    with agents(stack, name, folder, f"{name}-a") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


def test_a_job_that_hangs_twice_alike_ends_and_its_stacks_are_kept(pool: Pool) -> None:
    job = pool.submit("hangs", PROGRAM, 2, limits={"restarts": 3})
    final = job.until(lambda s: s.state is JobState.FAILED)
    assert final.restarts == 1 and "hung twice" in final.reason, final.reason
    assert f"trainhouse stack {job.id} --attempt 1" in final.reason
    for attempt in ("0", "1"):
        told = until(lambda attempt=attempt: both(pool, job.id, attempt), f"the stacks of attempt {attempt}")  # type: ignore[misc]
        assert "hang_here" in told.partition("rank 1")[2], told
    exits = pool.rows(f"SELECT summary FROM events WHERE job_id = '{job.id}' AND type = 'trainhouse.rank.exited.v1'")
    assert exits and not [row for row in exits if "out of memory" in row["summary"]], exits
    none = pool.stack.run("stack", job.id, "--attempt", "7")
    assert none.code == Exit.NOT_FOUND and "no stacks are kept of attempt 7" in none.err


def both(pool: Pool, job: str, attempt: str) -> str | None:
    done = pool.stack.run("stack", job, "--attempt", attempt)
    return done.out if done.code == 0 and "rank 0" in done.out and "rank 1" in done.out else None
