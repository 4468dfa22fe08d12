"""Checkpoints of a real gang: two gloo ranks under DDP against a real object store, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from trainhouse.checkpointing.chunks import chunk_key, chunks_prefix
from trainhouse.checkpointing.commits import read_entry
from trainhouse.checkpointing.manifest import Manifest
from trainhouse.checkpointing.s3 import S3ObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.deploy.local.ports import free_ports

if TYPE_CHECKING:
    from trainhouse.deploy.local.store import StoreServer

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
PROGRAM = Path(__file__).with_name("checkpoint_ranks.py")
RANKS = 2
GANG_TIMEOUT_S = 240


@pytest.fixture
def job() -> str:
    return f"ddp-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def store(object_store_endpoint: StoreServer) -> S3ObjectStore:
    return S3ObjectStore(StoreSettings(**store_arguments(object_store_endpoint)))


def store_arguments(server: StoreServer) -> dict[str, Any]:
    return {"endpoint": server.endpoint, "bucket": server.bucket, "access_key": server.access_key, "secret_key": server.secret_key}


def start_gang(server: StoreServer, scenario: str, job: str, folder: Path, **more: str) -> list[subprocess.Popen[str]]:
    port = free_ports(1)[0]
    shared = {f"TRAINHOUSE_S3_{name.upper()}": value for name, value in store_arguments(server).items()}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"} | more
    return [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), scenario, job, str(folder)],
            env=os.environ | shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]


def outcome(gang: list[subprocess.Popen[str]]) -> list[tuple[int, dict[str, Any], str]]:
    """Exit code, last line and errors of each rank; nothing of the gang is left."""
    try:
        ends = [rank.communicate(timeout=GANG_TIMEOUT_S) for rank in gang]
    finally:
        for rank in gang:
            rank.kill()
    lines = [[line for line in out.splitlines() if line.startswith("{")] for out, _ in ends]
    return [(r.returncode, json.loads(said[-1]) if said else {}, err) for r, said, (_, err) in zip(gang, lines, ends, strict=True)]


def words(ranks: list[tuple[int, dict[str, Any], str]]) -> str:
    """How every rank ended and what it wrote to standard error, for a failed assertion."""
    return "".join(
        f"rank {rank} ended with {code}, said {said}; its standard error:\n{err}\n" for rank, (code, said, err) in enumerate(ranks)
    )


def outcome_when_dead(gang: list[subprocess.Popen[str]], dying: int) -> list[tuple[int, dict[str, Any], str]]:
    """As `outcome`, but as soon as one rank died, the others are ended, as a node agent does."""
    try:
        gang[dying].wait(GANG_TIMEOUT_S)
    finally:
        for rank in gang:
            rank.kill()
    return outcome(gang)


def run_gang(server: StoreServer, scenario: str, job: str, folder: Path) -> list[dict[str, Any]]:
    ranks = outcome(start_gang(server, scenario, job, folder))
    assert [code for code, _, _ in ranks] == [0] * RANKS, words(ranks)
    return [said for _, said, _ in ranks]


def test_a_resumed_gang_ends_bit_for_bit_as_one_that_never_stopped(
    object_store_endpoint: StoreServer, job: str, tmp_path: Path, store: S3ObjectStore
) -> None:
    straight = run_gang(object_store_endpoint, "straight", f"{job}-s", tmp_path)
    resumed = run_gang(object_store_endpoint, "save_and_resume", job, tmp_path)
    assert [r["end"] for r in resumed] == [r["end"] for r in straight]
    assert all((r["restored"], r["step"], r["damaged"]) == (1, 3, []) for r in resumed)
    assert resumed[0]["told"] == ["CheckpointCompleted", "CheckpointRestored"] and resumed[1]["told"] == []
    # Most bytes are one embedding and its two moments: only cut in pieces can two ranks share them.
    sent = [r["sent_bytes"] for r in resumed]
    assert sum(sent) > 2_000_000 and all(0.4 < s / sum(sent) < 0.6 for s in sent), sent
    manifest = read_entry(store, job, 1)
    assert isinstance(manifest, Manifest) and manifest.world_size == RANKS and len(manifest.ranks) == RANKS
    assert manifest.bytes_new == manifest.bytes_total == sum(sent)


def test_damage_that_one_rank_finds_makes_all_fall_back(
    object_store_endpoint: StoreServer, job: str, tmp_path: Path, store: S3ObjectStore
) -> None:
    saved = run_gang(object_store_endpoint, "two_checkpoints", job, tmp_path)
    older, newer = read_entry(store, job, 1), read_entry(store, job, 2)
    assert isinstance(older, Manifest) and isinstance(newer, Manifest)
    distinct = sorted({c.sha256 for c in newer.chunks})
    of_rank_1 = [sha for place, sha in enumerate(distinct) if place % RANKS == 1 and sha not in {c.sha256 for c in older.chunks}]
    store.put(chunk_key(of_rank_1[0], chunks_prefix(job)), b"not what it was")
    found = run_gang(object_store_endpoint, "only_restore", job, tmp_path)
    assert all((r["restored"], r["step"], r["damaged"]) == (1, 1, [2]) for r in found)
    assert [r["print"] for r in found] == [r["prints"][0] for r in saved]


def test_a_stale_attempt_that_commits_a_checkpoint_is_refused_on_every_rank(
    object_store_endpoint: StoreServer, job: str, tmp_path: Path, store: S3ObjectStore
) -> None:
    assert [r["error"] for r in run_gang(object_store_endpoint, "stale", job, tmp_path)] == ["StaleEpoch", "StaleEpoch"]
    entries = [read_entry(store, job, n) for n in range(4)]
    assert [(e.kind, int(e.epoch)) for e in entries if e is not None] == [("claim", 1), ("checkpoint/2", 1), ("claim", 2)]


def test_sharded_tensors_are_written_by_shard_and_read_in_another_layout(
    object_store_endpoint: StoreServer, job: str, tmp_path: Path
) -> None:
    ranks = run_gang(object_store_endpoint, "sharded", job, tmp_path)
    assert all(r["columns"] and r["plain"] for r in ranks)
    assert all(0.4 < r["sent_bytes"] / r["bytes_total"] < 0.6 for r in ranks)


def test_when_one_rank_cannot_upload_nobody_commits(object_store_endpoint: StoreServer, job: str, tmp_path: Path) -> None:
    ranks = run_gang(object_store_endpoint, "one_rank_fails", job, tmp_path)
    assert [r["error"] for r in ranks] == ["ObjectStoreUnavailable"] * 2 and [r["commit"] for r in ranks] == [1, 1]
    assert ranks[0]["told"] == ["CheckpointStarted", "CheckpointFailed", "CheckpointStarted", "CheckpointCompleted"]


def test_kill_9_at_every_point_of_a_save_leaves_the_old_or_the_new_one(
    object_store_endpoint: StoreServer, job: str, tmp_path: Path
) -> None:
    commits = f"jobs/{job}/commits/"
    points = [(1, "/chunks/", True), (0, "/chunks/", False), (0, commits, True), (0, commits, False), (1, "/chunks/", False)]
    began: list[int] = []
    saving: list[int] = []
    for epoch, (dying, prefix, before) in enumerate(points, start=1):
        more = {"EPOCH": str(epoch), "DYING": str(dying), "AT": prefix, "BEFORE": str(int(before))}
        gang = start_gang(object_store_endpoint, "resume_train_and_die", job, tmp_path, **more)
        ranks = outcome_when_dead(gang, dying)
        assert ranks[dying][0] == -signal.SIGKILL, words(ranks)
        assert all(said["same"] for _, said, _ in ranks), "a restored state is exactly that of the step it names\n" + words(ranks)
        began.append(ranks[dying][1]["step"])
        saving.append(ranks[dying][1]["saving"])
    last = outcome(start_gang(object_store_endpoint, "resume_train_and_die", job, tmp_path, EPOCH="9", DYING="-1", AT="-", BEFORE="1"))
    assert [code for code, _, _ in last] == [0, 0], words(last)
    # Only the save whose manifest was written counts: each attempt begins from the last such step.
    assert began == [0, 1, 1, 1, 2] and saving == [2, 2, 2, 2, 3]
    assert [said["step"] for _, said, _ in last] == [2, 2] and all(said["same"] for _, said, _ in last), words(last)
