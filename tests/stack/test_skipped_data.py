"""A sample that is no number spoils the loss of a gang: the job goes on past the batches that did it, and SQL has them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import Pool
from trainhouse.events import JobState

pytestmark = pytest.mark.stack

ROWS, STEPS, BATCH, BAD = 60, 8, 6, 33
PROGRAM = f"""\
import math
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Linear(1, 1)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
samples = [math.nan if number == {BAD} else number / 100 for number in range({ROWS})]
LOADER
session.track(model=wrapped, optimizer=optimizer, loader=loader)
for step in session.steps({STEPS}):
    loss = wrapped(next(batches).float()[:, None]).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss)
"""
OF_SESSION = f"batches = loader = session.loader(samples, batch={BATCH}, shuffle=False)"
OF_PROGRAM = f"""
class Own:
    at = 0
    def state_dict(self): return {{"at": self.at}}
    def load_state_dict(self, state): self.at = state["at"]
    def __next__(self):
        self.at += {BATCH}
        return torch.tensor(samples[self.at - {BATCH} : self.at])

batches = loader = Own()
"""
SKIPS = {"divergence": {"action": "skip_data"}, "checkpoint": {"every_steps": 2}}


@pytest.fixture
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node of two slots."""
    name, folder = f"skip-{secrets.token_hex(3)}", tmp_path_factory.mktemp("skip")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


def test_a_job_goes_on_past_the_batches_that_spoiled_its_loss(pool: Pool) -> None:
    job = pool.submit("skips", PROGRAM.replace("LOADER", OF_SESSION), 2, **SKIPS)
    ended = job.until(lambda s: s.state.final)
    assert ended.state is JobState.SUCCEEDED and ended.step == STEPS, ended.reason
    query = f"""SELECT attempt, first_step, last_step, first_position, end_position, skip_reason FROM data_positions
        WHERE job_id = '{job.id}' AND skipped"""
    first = BAD // BATCH * BATCH
    pool.once(query, lambda found: [tuple(row.values()) for row in found] == [(0, 4, 5, first - BATCH, first + BATCH, "the loss was nan")])
    query = f"SELECT first_position AS begin, end_position AS end FROM data_positions WHERE job_id = '{job.id}' AND NOT superseded"
    used = [*range(first - BATCH), *range(first + BATCH, ROWS)]
    pool.once(query, lambda found: sorted(at for row in found for at in range(row["begin"], row["end"])) == used)


def test_a_job_with_a_loader_of_its_own_fails_and_names_the_reason(pool: Pool) -> None:
    job = pool.submit("cannot", PROGRAM.replace("LOADER", OF_PROGRAM), 2, **SKIPS)
    ended = job.until(lambda s: s.state.final)
    assert ended.state is JobState.FAILED
    assert (
        "its loss diverged at step" in ended.reason and "needs each loader that training reads from to be a session.loader" in ended.reason
    )
