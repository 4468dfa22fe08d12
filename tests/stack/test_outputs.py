"""A job of two ranks writes an output, is killed once, and publishes it once."""

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
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobState

pytestmark = pytest.mark.stack

# The first attempt writes half of the pieces, and samples that no version may have, and dies; what is named stays.
PROGRAM = """\
import os, signal, sys
from trainhouse.workers import Session

name, dies = sys.argv[1], "--dies" in sys.argv
session = Session.start()
out = session.output(name)
first = session._context.epoch == 1
for number in range(session.rank, 8, session.world_size):
    if f"part-{number}" in out.pieces():
        continue
    if number >= 4 and first and dies:
        out.add({"json": {"n": -1}})
        os.kill(os.getpid(), signal.SIGKILL)
    with out.piece(f"part-{number}") as piece:
        for n in range(5):
            piece.add({"json": {"n": number * 5 + n}}, split="test" if n == 4 else "train")
out.add({"json": {"n": 100 + session.rank}})
if "--fails" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of two nodes of one slot."""
    name, folder = f"outputs-{secrets.token_hex(3)}", tmp_path_factory.mktemp("outputs")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a", f"{name}-b", SLOTS="1") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


def command(pool: Pool, name: str, *more: str) -> dict[str, object]:
    return {"runtime": {"command": (*pool.script(PROGRAM), name, *more)}, "outputs": [name]}


def test_an_output_is_published_once_though_its_job_was_killed(pool: Pool) -> None:
    stack, name = pool.stack, f"made-{secrets.token_hex(3)}"
    job = pool.submit("writes", PROGRAM, 2, **command(pool, name, "--dies"), limits={"restarts": 3})
    done = job.until(lambda s: s.state is JobState.SUCCEEDED)
    assert done.attempt == 1 and f"it published {name}@sha256:" in done.reason, done
    [version] = [row for row in stack.run("data", "list", "--json").objects() if row["dataset"] == name]
    reference = f"{name}@sha256:{version['sha256']}"
    assert reference in done.reason and version["row_count"] == 42
    [shown] = stack.run("data", "show", reference, "--json").objects()
    [source] = shown["manifest"]["sources"]
    assert (source["kind"], source["job"]) == ("job", job.id)
    assert "are whole" in stack.ok("data", "verify", reference)
    numbers = [json.loads(stack.ok("data", "sample", reference, "--at", str(at), "--field", "json"))["n"] for at in (0, 3, 33)]
    assert numbers == [0, 3, 101]
    pool.once(
        f"SELECT to_id FROM lineage_edges WHERE from_id = 'job:{job.id}' AND kind = 'wrote'",
        lambda rows: [row["to_id"] for row in rows] == [f"data:{reference}"],
    )

    reads = (
        "from trainhouse.workers import Session\nbatch = next(Session.start().loader('test', batch=8))\nassert len(batch['__key__']) == 8\n"
    )
    pool.submit("reads", reads, 1, data={"dataset": reference}).succeeds()


def test_a_job_that_fails_publishes_nothing_and_the_sweep_removes_what_it_staged(pool: Pool) -> None:
    stack, name = pool.stack, f"none-{secrets.token_hex(3)}"
    job = pool.submit("fails", PROGRAM, 2, **command(pool, name, "--fails"))
    job.until(lambda s: s.state is JobState.FAILED)
    assert not [row for row in stack.run("data", "list", "--json").objects() if row["dataset"] == name]
    objects = S3ObjectStore(StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"]))
    assert list(objects.list(f"jobs/{job.id}/outputs/"))
    stack.ok("store", "sweep")
    assert list(objects.list(f"jobs/{job.id}/outputs/"))  # younger than a day


def test_an_output_that_was_not_written_fails_the_job(pool: Pool) -> None:
    name = f"empty-{secrets.token_hex(3)}"
    job = pool.submit("idle", "pass", 2, outputs=[name])
    failed = job.until(lambda s: s.state is JobState.FAILED)
    assert f"output {name} has no sample" in failed.reason


def test_a_name_of_another_project_is_refused_at_submission(pool: Pool, tmp_path: Path) -> None:
    stack, name = pool.stack, f"theirs-{secrets.token_hex(3)}"
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    stack.ok("data", "publish", name, str(tmp_path / "rows.jsonl"), "--project", "theirs")
    job = pool.submit("takes", "pass", 1, outputs=[name])
    status = until(job.seen, "refused")
    assert status.state is JobState.REJECTED and f"a dataset {name} belongs to another project" in status.reason


def test_a_rank_reaches_no_output_that_its_spec_does_not_name(pool: Pool) -> None:
    name = f"mine-{secrets.token_hex(3)}"
    program = f"""\
from trainhouse.checkpointing.errors import ObjectStoreRefusedError
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.workers import Session
session = Session.start()
store, refused = open_store(StoreSettings()), 0
job = session._context.job_id
sha = "a" * 64
keys = [f"jobs/{{job}}/outputs/other/shards/{{sha}}.tar", f"jobs/{{job}}/ended/0000000000/x", f"datasets/default/shards/aa/{{sha}}.tar",
        f"datasets/default/manifests/{{sha}}.json", f"jobs/someone/outputs/{name}/pieces/p.json",
        f"jobs/{{job}}/outputs/{name}/ranks/0000000009/000000.json"]
for key in keys:
    try:
        store.put(key, b"x")
    except ObjectStoreRefusedError:
        refused += 1
assert refused == len(keys), refused
session.output("{name}").add({{"txt": "x"}})
"""
    pool.submit("probes", program, 1, outputs=[name]).succeeds()
