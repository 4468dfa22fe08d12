"""Checkpoints of a real gang: two gloo ranks under DDP against a real object store, killed and resumed."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.launcher_support import Attempt
from tests.support.waiting import until
from trainhouse.checkpointing.chain.chunks import chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.workers.launcher import Launcher, attempt_alive, kill_tree

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
PROGRAM = Path(__file__).with_name("checkpoint_ranks.py")
RANKS = 2
GANG_TIMEOUT_S = 240
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def job() -> str:
    return f"ddp-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def store(object_store_endpoint: StoreServer) -> S3ObjectStore:
    return S3ObjectStore(StoreSettings(**store_arguments(object_store_endpoint)))


def store_arguments(server: StoreServer) -> dict[str, Any]:
    return {"endpoint": server.endpoint, "bucket": server.bucket, "access_key": server.access_key, "secret_key": server.secret_key}


class Gang(Attempt):
    """The ranks of one scenario, forked from the launcher's warm process as an agent starts them."""

    def __init__(self, launcher: Launcher, server: StoreServer, scenario: str, job: str, folder: Path, **more: str) -> None:
        super().__init__(folder / f"gang-{uuid.uuid4().hex}", "", RANKS)
        shared = {f"TRAINHOUSE_S3_{name.upper()}": value for name, value in store_arguments(server).items()} | more
        launcher.start(self.paths, self.launches(("python", str(PROGRAM), scenario, job, str(folder)), shared), self.store)

    def outcome(self) -> list[Outcome]:
        """How each rank ended; nothing of the gang is left."""
        try:
            ends = [self.exit_of(rank, GANG_TIMEOUT_S) for rank in range(RANKS)]
        finally:
            self._end()
        return [Outcome(end.exit_code, end.signal, self._said(rank), self.stderr(rank)) for rank, end in enumerate(ends)]

    def outcome_when_dead(self, dying: int) -> list[Outcome]:
        """As `outcome`, but as soon as one rank died, the others are killed, as a node agent does."""
        try:
            self.exit_of(dying, GANG_TIMEOUT_S)
        except BaseException:
            self._end()
            raise
        kill_tree(self.paths)
        return self.outcome()

    def _said(self, rank: int) -> dict[str, Any]:
        lines = [line for line in self.stdout(rank).splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}

    def _end(self) -> None:
        kill_tree(self.paths)
        until(lambda: not attempt_alive(self.paths), "the gang's processes are gone")
        self.close()


@dataclass(frozen=True)
class Outcome:
    """How one rank ended: its code or the signal that ended it, the last JSON line that it printed, and its standard error."""

    code: int | None
    signal: int | None
    said: dict[str, Any]
    stderr: str


def words(ranks: list[Outcome]) -> str:
    """How every rank ended and what it wrote to standard error, for a failed assertion."""
    return "".join(
        f"rank {rank} ended with {r.code} (signal {r.signal}), printed {r.said}; its standard error:\n{r.stderr}\n"
        for rank, r in enumerate(ranks)
    )


@pytest.fixture
def start(launcher: Launcher, object_store_endpoint: StoreServer, job: str, tmp_path: Path) -> Callable[..., Gang]:
    """Starts a gang of this test's job, or of `job`, that does a scenario."""

    def begin(scenario: str, job: str = job, **more: str) -> Gang:
        return Gang(launcher, object_store_endpoint, scenario, job, tmp_path, **more)

    return begin


@pytest.fixture
def run(start: Callable[..., Gang]) -> Callable[..., list[dict[str, Any]]]:
    """Does a scenario to its end, which must be a good one; what each rank printed."""

    def whole(*scenario_and_job: str) -> list[dict[str, Any]]:
        ranks = start(*scenario_and_job).outcome()
        assert [rank.code for rank in ranks] == [0] * RANKS, words(ranks)
        return [rank.said for rank in ranks]

    return whole


def test_a_resumed_gang_ends_bit_for_bit_as_one_that_never_stopped(run: Run, job: str, store: S3ObjectStore) -> None:
    straight = run("straight", f"{job}-s")
    resumed = run("save_and_resume")
    assert [r["end"] for r in resumed] == [r["end"] for r in straight]
    assert all((r["restored"], r["step"], r["damaged"]) == (1, 3, []) for r in resumed)
    assert resumed[0]["told"] == ["CheckpointCompleted", "CheckpointRestored"] and resumed[1]["told"] == []
    # Most bytes are one embedding and its two moments: only cut in pieces can two ranks share them.
    sent = [r["sent_bytes"] for r in resumed]
    assert sum(sent) > 2_000_000 and all(0.4 < s / sum(sent) < 0.6 for s in sent), sent
    manifest = read_entry(store, job, 1)
    assert isinstance(manifest, Manifest) and manifest.world_size == RANKS and len(manifest.ranks) == RANKS
    assert manifest.bytes_new == manifest.bytes_total == sum(sent)


def test_damage_that_one_rank_finds_makes_all_fall_back(run: Run, job: str, store: S3ObjectStore) -> None:
    saved = run("two_checkpoints")
    older, newer = read_entry(store, job, 1), read_entry(store, job, 2)
    assert isinstance(older, Manifest) and isinstance(newer, Manifest)
    distinct = sorted({c.sha256 for c in newer.chunks})
    of_rank_1 = [sha for place, sha in enumerate(distinct) if place % RANKS == 1 and sha not in {c.sha256 for c in older.chunks}]
    store.put(chunk_key(of_rank_1[0], chunks_prefix(job)), b"not what it was")
    found = run("only_restore")
    assert all((r["restored"], r["step"], r["damaged"]) == (1, 1, [2]) for r in found)
    assert [r["print"] for r in found] == [r["prints"][0] for r in saved]


def test_a_stale_attempt_that_commits_a_checkpoint_is_refused_on_every_rank(run: Run, job: str, store: S3ObjectStore) -> None:
    assert [r["error"] for r in run("stale")] == ["StaleEpochError", "StaleEpochError"]
    entries = [read_entry(store, job, n) for n in range(4)]
    assert [(e.kind, int(e.epoch)) for e in entries if e is not None] == [("claim", 1), ("checkpoint/2", 1), ("claim", 2)]


def test_sharded_tensors_are_written_by_shard_and_read_in_another_layout(run: Run) -> None:
    ranks = run("sharded")
    assert all(r["columns"] and r["plain"] for r in ranks)
    assert all(0.4 < r["sent_bytes"] / r["bytes_total"] < 0.6 for r in ranks)


def test_when_one_rank_cannot_upload_nobody_commits(run: Run) -> None:
    ranks = run("one_rank_fails")
    assert [r["error"] for r in ranks] == ["ObjectStoreUnavailableError"] * 2 and [r["commit"] for r in ranks] == [1, 1]
    assert ranks[0]["told"] == ["CheckpointStarted", "CheckpointFailed", "CheckpointStarted", "CheckpointCompleted"]


def test_kill_9_at_every_point_of_a_save_leaves_the_old_or_the_new_one(start: Callable[..., Gang], job: str) -> None:
    commits = f"jobs/{job}/commits/"
    points = [(1, "/chunks/", True), (0, "/chunks/", False), (0, commits, True), (0, commits, False), (1, "/chunks/", False)]
    began: list[int] = []
    saving: list[int] = []
    for epoch, (dying, prefix, before) in enumerate(points, start=1):
        more = {"EPOCH": str(epoch), "DYING": str(dying), "AT": prefix, "BEFORE": str(int(before))}
        ranks = start("resume_train_and_die", **more).outcome_when_dead(dying)
        assert ranks[dying].signal == signal.SIGKILL, words(ranks)
        assert all(rank.said["same"] for rank in ranks), "a restored state is exactly that of the step it names\n" + words(ranks)
        began.append(ranks[dying].said["step"])
        saving.append(ranks[dying].said["saving"])
    last = start("resume_train_and_die", EPOCH="9", DYING="-1", AT="-", BEFORE="1").outcome()
    assert [rank.code for rank in last] == [0, 0], words(last)
    # Only the save whose manifest was written counts: each attempt begins from the last such step.
    assert began == [0, 1, 1, 1, 2] and saving == [2, 2, 2, 2, 3]
    assert [rank.said["step"] for rank in last] == [2, 2] and all(rank.said["same"] for rank in last), words(last)
