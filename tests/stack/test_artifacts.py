"""Artifacts on a whole stack: a rank that is killed while it stores one, what it may not reach, a preparation's tokenizer, the commands."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import Pool
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobState
from trainhouse.events.model.artifact_keys import manifest_key, object_key, reference_key

pytestmark = pytest.mark.stack

FILES = 40
# The first attempt dies at the eighth file; the second one finds nothing under the name, and completes it.
STORES = f"""\
import itertools, os, pathlib, signal, sys
from trainhouse.workers import Session
from trainhouse.workers.session.errors import InvalidUseError

name, session = sys.argv[1], Session.start()
folder = pathlib.Path("model")
folder.mkdir(exist_ok=True)
for number in range({FILES}):
    (folder / f"{{number}}.bin").write_bytes(bytes([number]) * 10_000)
if session._context.epoch == 1:
    store, count = session._artifacts._store(), itertools.count()
    whole = store.put_hashed
    def put_hashed(key, file, sha256):
        if next(count) == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        whole(key, file, sha256)
    store.put_hashed = put_hashed
    session._artifacts._store = lambda: store
else:
    try:
        session.artifact(name)
        sys.exit("something was there")
    except InvalidUseError as error:
        assert "has no artifact" in str(error), error
logged = session.log_artifact(folder, name=name, kind="model")
for step in session.steps(3):
    session.log(loss=1.0)
print("stored", logged.wait() if session._context.epoch == 1 else logged.name)
"""
PROBES = """\
import io, sys
from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreRefusedError
from trainhouse.checkpointing.lease.signed_store import open_artifact_store, open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.workers import Session

session, reached = Session.start(), 0
file, manifest = sys.argv[1:]
job, probes = session._context.job_id, 0
for store in (open_artifact_store(StoreSettings()), open_store(StoreSettings())):
    for project in ("theirs", "Theirs", "default/../theirs", "theirs/", "."):
        for key in (f"objects/{file[:2]}/{file}", f"manifests/{manifest}.json", f"names/secret/{manifest}/user"):
            for call in (store.get, store.stat, lambda key: store.get_range(key, 0, 1), lambda key: list(store.list(key)),
                         lambda key: store.put(key, b"x"), store.delete, lambda key: store.put_hashed(key, io.BytesIO(b"x"), file)):
                probes += 1
                try:
                    reached += call(f"project-artifacts/{project}/{key}") is not None or 1
                except CheckpointError:
                    pass
store = open_artifact_store(StoreSettings())
other = "cd" * 32
try:
    store.put_hashed(f"project-artifacts/default/objects/cd/{other}", io.BytesIO(b"of another hash"), other)
    reached += 1
except ObjectStoreRefusedError:
    pass
for key in (f"project-artifacts/default/names/x/{other}/job.{job}x", f"project-artifacts/default/references/{other}/dataset.{other}",
            f"project-artifacts/default/deleted-runs/{job}"):
    try:
        store.put(key, b"")
        reached += 1
    except ObjectStoreRefusedError:
        pass
assert not reached, reached
print("probes", probes)
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node of one slot."""
    name, folder = f"artifacts-{secrets.token_hex(3)}", tmp_path_factory.mktemp("artifacts")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a", SLOTS="1") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


@pytest.fixture
def objects(stack: LiveStack) -> S3ObjectStore:
    return S3ObjectStore(StoreSettings.model_validate(read_toml(stack.data_dir / "trainhouse.toml")["s3"]))


def test_a_rank_that_is_killed_while_it_stores_leaves_nothing_and_the_next_attempt_completes_it(pool: Pool, tmp_path: Path) -> None:
    stack, name = pool.stack, f"model-{secrets.token_hex(3)}"
    command = {"runtime": {"command": (*pool.script(STORES), name)}}
    job = pool.submit("stores", STORES, 1, **command, limits={"restarts": 3})
    done = job.until(lambda s: s.state.final)
    assert done.state is JobState.SUCCEEDED and done.attempt == 1, (done, stack.ok("logs", job.id))
    [version] = stack.run("artifact", "list", name, "--json").objects()
    assert (version["kind"], version["files"], version["size_bytes"], version["named_by"]) == (
        "model",
        FILES,
        FILES * 10_000,
        [f"job.{job.id}"],
    )
    assert f"{FILES} files are whole" in stack.ok("artifact", "verify", name)
    reference = f"{name}@sha256:{version['sha256']}"
    rows = pool.once(f"SELECT sha256, kind, project, files FROM artifact_versions WHERE job_id = '{job.id}'", bool)
    assert rows == [{"sha256": version["sha256"], "kind": "model", "project": "default", "files": FILES}]
    shown = stack.run("status", job.id, "--json").objects()[0]["artifacts"]
    assert [(row["action"], row["name"], row["sha256"], row["size_bytes"]) for row in shown] == [
        ("stored", name, version["sha256"], FILES * 10_000)
    ]
    assert f"stored      {name}@{version['sha256'][:12]}  model, " in stack.ok("status", job.id)
    edges = f"SELECT from_id, kind FROM lineage_to(id = 'artifact:{reference}') WHERE distance = 1"
    assert stack.rows(edges) == [{"from_id": f"job:{job.id}", "kind": "wrote"}]
    stack.ok("artifact", "get", reference, str(tmp_path / "out"))
    assert (tmp_path / "out" / "7.bin").read_bytes() == bytes([7]) * 10_000
    stack.ok("artifact", "put", f"{name}-copy", str(tmp_path / "out"), "--kind", "model")
    [copy] = stack.run("artifact", "list", f"{name}-copy", "--json").objects()
    assert copy["sha256"] == version["sha256"]
    stack.ok("store", "sweep")
    stack.ok("artifact", "verify", reference)
    stack.ok("artifact", "delete", reference)
    assert stack.run("artifact", "show", reference).code == 66
    until(lambda: not stack.rows(f"SELECT 1 FROM artifact_versions WHERE name = '{name}'"), "its row is gone")


def test_no_probe_of_a_rank_reaches_an_artifact_of_another_project(pool: Pool, tmp_path: Path) -> None:
    stack, content = pool.stack, secrets.token_hex(32)
    (tmp_path / "secret.txt").write_text(content)
    stack.ok("artifact", "put", "secret", str(tmp_path / "secret.txt"), "--project", "theirs")
    [version] = stack.run("artifact", "list", "secret", "--project", "theirs", "--json").objects()
    file = hashlib.sha256(content.encode()).hexdigest()
    command = {"runtime": {"command": (*pool.script(PROBES), file, version["sha256"])}}
    job = pool.submit("probes", PROBES, 1, **command, limits={"restarts": 0})
    done = job.until(lambda s: s.state.final)
    assert done.state is JobState.SUCCEEDED, stack.ok("logs", job.id)
    until(lambda: "probes 210" in stack.ok("logs", job.id), lambda: stack.ok("logs", job.id))


def test_a_preparations_tokenizer_is_an_artifact_that_training_finds(pool: Pool, objects: S3ObjectStore, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    stack, raw, name = pool.stack, f"raw-{secrets.token_hex(3)}", f"tokens-{secrets.token_hex(3)}"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"a b {n}"}) + "\n" for n in range(20)))
    stack.ok("data", "publish", raw, str(tmp_path / "rows.jsonl"), "--version", "1.0.0")
    words = {"a": 0, "b": 1, "[UNK]": 2}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (folder := tmp_path / "job").mkdir()
    tokenizer.save(str(folder / "own-words.json"))
    steps = {"source": f"{raw}@1.0.0", "output": name, "tokenise": {"column": "text", "tokenizer": "own-words.json"}}
    (folder / "prepare.yaml").write_text(yaml.safe_dump(steps | {"job": {"limits": {"restarts": 0}}}))
    [prepared] = stack.run("data", "prepare", str(folder / "prepare.yaml"), "--json").objects()
    status = until(lambda: found if (found := stack.client().status(prepared["job_id"])).state.final else None, "it ended")
    assert status.state is JobState.SUCCEEDED, (status, stack.ok("logs", prepared["job_id"]))
    [made] = [row for row in stack.run("data", "list", "--json").objects() if row["dataset"] == name]
    reference = f"{name}@sha256:{made['sha256']}"
    [shown] = stack.run("data", "show", reference, "--json").objects()
    [named] = shown["manifest"]["artifacts"]
    assert named["name"] == "tokenizer" and objects.stat(manifest_key("default", named["sha256"])) is not None
    assert objects.stat(reference_key("default", named["sha256"], f"dataset.{made['sha256']}")) is not None
    content = hashlib.sha256((folder / "own-words.json").read_bytes()).hexdigest()
    assert objects.stat(object_key("default", content)) is not None
    kept = stack.run("artifact", "delete", f"{name}-tokenizer@{named['sha256']}")
    assert kept.code and f"is kept by dataset.{made['sha256']}" in kept.err
    reads = (
        "import hashlib\nfrom trainhouse.workers import Session\nfolder = Session.start().artifact('tokenizer')\n"
        f"assert hashlib.sha256((folder / 'tokenizer.json').read_bytes()).hexdigest() == '{content}'\n"
    )
    job = pool.submit("reads", reads, 1, data={"dataset": reference}, limits={"restarts": 0})
    job.succeeds()
    pool.once(
        f"SELECT from_id FROM lineage_edges WHERE to_id = 'job:{job.id}' AND kind = 'used'",
        lambda rows: [row["from_id"] for row in rows] == [f"artifact:tokenizer@sha256:{named['sha256']}"],
    )
