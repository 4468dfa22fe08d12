"""A gang meets a damaged shard: its job waits for a person, saved; the shard is quarantined and rebuilt; the job goes on."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import Pool
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobState
from trainhouse.events.model.dataset_keys import shard_key

pytestmark = pytest.mark.stack

ROWS, STEPS, BATCH = 60, 30, 6
PROGRAM = f"""\
import json, sys
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Linear(1, 1)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loader = session.loader("train", batch={BATCH}, decode=lambda sample: float(json.loads(sample["json"])["n"]))
session.track(model=wrapped, optimizer=optimizer, loader=loader)
for step in session.steps({STEPS}):
    loss = (wrapped(next(loader).float()[:, None] / 100).square().mean()) * loader.weight
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    session.log(loss=loss)
"""


@pytest.fixture
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node of two slots."""
    name, folder = f"bad-{secrets.token_hex(3)}", tmp_path_factory.mktemp("bad")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


def damage(objects: S3ObjectStore, key: str) -> None:
    """Changes a byte of each block of the middle half."""
    content = bytearray(objects.get(key))
    for at in range(len(content) // 4, 3 * len(content) // 4, 64):
        content[at] ^= 1
    objects.put(key, bytes(content))


def test_a_job_that_meets_a_bad_shard_is_reviewed_and_goes_on_with_the_rebuilt_one(pool: Pool, tmp_path: Path) -> None:
    stack, name, source = pool.stack, f"numbers-{secrets.token_hex(3)}", tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(ROWS)))
    version = stack.ok("data", "publish", name, str(source), "--version", "1.0.0").split()[0]
    [shown] = stack.run("data", "show", version, "--json").objects()
    [shard] = shown["manifest"]["splits"]["train"]["shards"]
    objects = S3ObjectStore(StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"]))
    damage(objects, shard_key("default", shard["sha256"]))
    assert stack.run("data", "quarantine", "release", version).code == Exit.NOT_FOUND

    job = pool.submit("meets", PROGRAM, 2, data={"dataset": version})
    rests = job.until(lambda s: s.state is JobState.NEEDS_REVIEW)
    assert not rests.allocation and rests.last_checkpoint is not None and 0 < rests.last_checkpoint.step < STEPS
    for part in (f"samples of {version} could not be read", shard["sha256"][:12], "--go-on"):
        assert part in rests.reason, rests.reason
    assert "could not be read" in stack.run("why", job.id).err

    rows = until(lambda: stack.run("data", "quarantine", "list", name, "--json").objects(), "the shard in quarantine")
    assert [(row["version"], row["shard"], row["evidence"]["job_id"]) for row in rows] == [(version, shard["sha256"], job.id)]
    evidence = rows[0]["evidence"]
    assert evidence["fault"] == "wrong_hash" and "CRC-32" in evidence["expected"] and evidence["seen"] and evidence["node_id"] in pool.nodes
    assert shard["sha256"][:12] in stack.ok("data", "quarantine", "list", f"{name}@1.0.0")
    query = f"SELECT shard, fault, job_id, released FROM quarantined_shards WHERE dataset = '{name}'"
    pool.once(query, lambda found: [tuple(row.values()) for row in found] == [(shard["sha256"], "wrong_hash", job.id, 0)])

    other = pool.submit("told", "pass", 1, data={"dataset": version})
    other.succeeds()
    assert stack.status(other.id)["state"] == "SUCCEEDED"

    still = stack.run("data", "quarantine", "rebuild", version)
    assert still.code == Exit.FAILED and "other contents than its hash says" in still.err, (still.out, still.err)
    (fewer := tmp_path / "fewer.jsonl").write_text('{"n": 1}\n')
    still = stack.run("data", "quarantine", "rebuild", version, "--from", str(fewer))
    assert still.code == Exit.FAILED and "--shard-mib of the publication" in still.err, (still.out, still.err)
    assert "is released" in stack.ok("data", "quarantine", "rebuild", version, "--from", str(source))
    assert "are whole" in stack.ok("data", "verify", version)
    assert stack.run("data", "quarantine", "list", name, "--json").objects() == []
    typo = stack.run("data", "quarantine", "list", "no-such-name")
    assert typo.code == Exit.NOT_FOUND and "there is no dataset no-such-name" in typo.err
    pool.once(query, lambda found: [row["released"] for row in found] == [1])

    stack.ok("review", job.id, "--go-on", "--max-bad", "0.01", "--reason", "its shard is whole again")
    assert job.until(lambda s: s.state is JobState.SUCCEEDED).step == STEPS
    restores = f"SELECT step FROM checkpoint_restores WHERE job_id = '{job.id}'"
    pool.once(restores, lambda found: [row["step"] for row in found] == [rests.last_checkpoint.step])
    assert pool.resumed_from(job) == [rests.last_checkpoint.step]
    _reads(pool, job.id, version, shard["sha256"], rests.last_checkpoint.step)


def _reads(pool: Pool, job_id: str, version: str, shard: str, resumed_at: int) -> None:
    """What the steps of both attempts read, in SQL: the review let the job go on from its last step, so nothing was thrown away."""
    whole = [(0, 0, resumed_at - 1, 0, resumed_at * BATCH), (1, resumed_at, STEPS - 1, resumed_at * BATCH, STEPS * BATCH)]
    query = f"""SELECT attempt, first_step, last_step, first_position, end_position FROM data_positions
        WHERE job_id = '{job_id}' AND version = '{version}' AND NOT superseded ORDER BY first_step"""
    pool.once(query, lambda found: [tuple(row.values()) for row in found] == whole)
    query = f"""SELECT attempt, step_ranges, samples, first_checkpoint != '' AS saved FROM shard_reads
        WHERE shard = '{shard}' AND job_id = '{job_id}' ORDER BY attempt"""
    pool.once(
        query,
        lambda found: (
            [tuple(row.values()) for row in found]
            == [(0, [[0, resumed_at - 1]], resumed_at * BATCH, 1), (1, [[resumed_at, STEPS - 1]], (STEPS - resumed_at) * BATCH, 1)]
        ),
    )
    query = f"SELECT attempt, version, position, samples, shards FROM step_data(job_id = '{job_id}', step = {STEPS - 1})"
    at = (STEPS - 1) * BATCH % ROWS
    pool.once(query, lambda found: [tuple(row.values()) for row in found] == [(1, version, at, BATCH, [shard])])
