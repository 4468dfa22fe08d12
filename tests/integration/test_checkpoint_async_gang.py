"""Saves beside training in a gang of two: whatever becomes of a rank, its group or its connection, all ranks know one outcome in time."""

from __future__ import annotations

import datetime
import json
import multiprocessing as mp
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import CheckpointError

GROUP_TIMEOUT_S = 300


class BrokenStore:
    """A connection to the process group's store that breaks at each write."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: object) -> None:
        raise dist.DistNetworkError(f"connection reset at {key}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Rank:
    """One rank of a gang that has saved step 1, in a process of its own; it writes its facts into a file."""

    def __init__(self, rank: int, port: int, folder: Path) -> None:
        torch.set_num_threads(1)
        group_store = dist.TCPStore("127.0.0.1", port, is_master=False)
        dist.init_process_group("gloo", store=group_store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=GROUP_TIMEOUT_S))
        self.rank, self._folder = rank, folder
        self.store = FolderObjectStore(folder)
        self.events: list[str] = []
        self.at = Checkpointer(CheckpointerSettings("j", 1, 0, "spec"), self.store, on_event=lambda name, fields: self.events.append(name))
        self.state = {"a": torch.arange(1000.0)}
        self.at.save(self.state, {"rank": rank}, 1, 1.0)
        self.state["a"] += 1

    def begin(self) -> Any:
        return self.at.begin_save(self.state, {"rank": self.rank, "step": 2}, 2, 2.0)

    def outcome(self, pending: Any) -> None:
        began = time.monotonic()
        try:
            self.tell(step=pending.result().step)
        except (CheckpointError, RuntimeError) as error:
            self.tell(error=type(error).__name__, message=str(error), in_time=time.monotonic() - began < GROUP_TIMEOUT_S / 3)

    def tell(self, **facts: Any) -> None:
        part = self._folder / f"part{self.rank}"
        part.write_text(json.dumps(facts | {"events": self.events}))
        part.rename(self._folder / f"facts{self.rank}")


def group_destroyed(rank: Rank) -> None:
    if rank.rank == 0:
        rank.store.hold()
    dist.barrier()
    rank.begin()
    until(lambda: rank.store.waiting >= 2, timeout_s=60)
    dist.barrier()
    dist.destroy_process_group()
    rank.store.let_go()
    rank.at.close(60)
    rank.tell()


def first_rank_dies_at_its_commit(rank: Rank) -> None:
    def die(key: str, body: object) -> bool:
        until(lambda: (rank.store._folder / "waits").exists())
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    if rank.rank == 0:
        rank.store.put_if_absent = die  # type: ignore[method-assign]
    pending = rank.begin()
    if rank.rank == 1:
        (rank.store._folder / "waits").touch()
    rank.outcome(pending)


def receipt_is_lost(rank: Rank) -> None:
    _break(rank, 1)


def outcome_is_lost(rank: Rank) -> None:
    _break(rank, 0)


def _break(rank: Rank, broken: int) -> None:
    ranks = rank.at._ranks
    if rank.rank == broken:
        rank.at._ranks = ranks = type(
            "BrokenRanks", (type(ranks),), {"store": property(lambda _: BrokenStore(dist.group.WORLD.get_group_store()))}
        )(None)  # type: ignore[union-attr]
    rank.outcome(rank.begin())


def _run(scenario: Any, rank: int, port: int, folder: Path) -> None:
    scenario(Rank(rank, port, folder))
    while not all((folder / f"facts{other}").exists() for other in range(2)) and os.getppid() != 1:
        time.sleep(0.01)  # the other still needs this one's connections
    os._exit(0)


class Gang:
    """Two ranks of a scenario."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._processes: list[Any] = []

    def run(self, scenario: Any, of: tuple[int, ...] = (0, 1)) -> list[dict[str, Any]]:
        FolderObjectStore(self.folder)
        context = mp.get_context("forkserver")  # torch is imported once for all tests
        context.set_forkserver_preload([__name__])
        self._processes = [context.Process(target=_run, args=(scenario, rank, self._server.port, self.folder)) for rank in range(2)]
        for process in self._processes:
            process.start()
        paths = [self.folder / f"facts{rank}" for rank in of]
        until(lambda: all(path.exists() for path in paths), timeout_s=90)
        return [json.loads(path.read_text()) for path in paths]

    def saved(self) -> list[Manifest]:
        store = FolderObjectStore(self.folder)
        entries = [read_entry(store, "j", n) for n in range(head(store, "j") + 1)]
        return [entry for entry in entries if isinstance(entry, Manifest)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    here = Gang(tmp_path / "gang")
    yield here
    here.close()


def test_a_group_that_is_destroyed_during_the_upload_leaves_a_checkpoint_of_all_ranks(gang: Gang) -> None:
    gang.run(group_destroyed)
    assert [(entry.step, entry.world_size, len(entry.ranks)) for entry in gang.saved()] == [(1, 2, 2), (2, 2, 2)]


def test_a_first_rank_that_dies_at_its_commit_is_known_at_once(gang: Gang) -> None:
    (facts,) = gang.run(first_rank_dies_at_its_commit, of=(1,))
    assert facts["error"] and facts["in_time"]
    assert [entry.step for entry in gang.saved()] == [1]


def test_a_receipt_that_cannot_be_put_fails_the_save_on_all_ranks_and_no_more(gang: Gang) -> None:
    first, second = gang.run(receipt_is_lost)
    for facts in (first, second):
        assert facts["error"] == "SaveFailedError" and "connection reset" in facts["message"] and facts["in_time"]
    assert first["events"][-1] == "CheckpointFailed" and [entry.step for entry in gang.saved()] == [1]


def test_an_outcome_that_cannot_be_put_reaches_the_others_all_the_same(gang: Gang) -> None:
    assert [facts["step"] for facts in gang.run(outcome_is_lost)] == [2, 2]
    assert [entry.step for entry in gang.saved()] == [1, 2]
