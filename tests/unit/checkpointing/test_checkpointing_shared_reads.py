"""Bytes that a restore reads from the store, over pairs of layouts on gloo ranks: each once; faults of one rank are known to all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gloo_gang import Groups, run_gang
from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import DamagedError, ObjectStoreUnavailableError, RankFailedError
from trainhouse.checkpointing.state import shared_reads
from trainhouse.checkpointing.state.shared_reads import SharedReads
from trainhouse.workers.session.saving.tracked_state import Tracked

MOST_READ = 1.05
"""Bytes read by a gang, of those of all chunks that its ranks need."""
SMALL_BYTES = 100_000
"""What is no tensor, and what else is in the packs of small ones."""
Layout = tuple[str, int]
PAIRS: tuple[tuple[Layout, Layout], ...] = (
    (("one", 1), ("ddp", 2)),
    (("ddp", 2), ("one", 1)),
    (("ddp", 2), ("ddp", 2)),
    (("ddp", 2), ("ddp", 4)),
    (("fsdp", 2), ("fsdp", 4)),
    (("fsdp", 4), ("fsdp", 2)),
    (("hsdp", 4), ("hsdp", 4)),
    (("ddp", 2), ("fsdp", 4)),
    (("one", 1), ("fsdp", 4)),
)


class Counting:
    """A store that counts the bytes of chunks that are read from it."""

    address = "memory"

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, key: str) -> bytes:
        body: bytes = self._store.get(key)
        if "/chunks/" in key:
            self.read.append((key, len(body)))
        return body


class Failing(Counting):
    """A store that is away for chunks."""

    def get(self, key: str) -> bytes:
        if "/chunks/" in key:
            raise ObjectStoreUnavailableError("away")
        return super().get(key)


class WithoutRoom(SharedReads):
    """Reads of a rank that gets no memory to receive into, nor to send from."""

    @property
    def _device(self) -> torch.device:
        raise MemoryError("no room")


class Run:
    """A model of 5 MB with its moments, in one layout."""

    def __init__(self, layout: str, group: dist.ProcessGroup, seed: int) -> None:
        torch.manual_seed(seed)
        net: nn.Module = nn.Sequential(nn.Linear(602, 800), nn.Tanh(), nn.Linear(800, 1000, bias=False), nn.Linear(1000, 3))
        if layout == "ddp":
            net = DistributedDataParallel(net, process_group=group)
        elif layout in ("fsdp", "hsdp"):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")) if layout == "hsdp" else None
            mesh = mesh or DeviceMesh.from_group(group, "cpu")
            for layer in (net[0], net[2], net[3]):  # type: ignore[index]
                fully_shard(layer, mesh=mesh)
            fully_shard(net, mesh=mesh)
        self.net = net
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        self.tracked = Tracked(net, self.optimizer)

    def step(self) -> None:
        self.net(torch.ones(4, 602)).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def own_bytes(self) -> int:
        """Bytes of the weights and moments that this rank has."""
        moments = [v for state in self.optimizer.state.values() for v in state.values()]
        local = [t.to_local() if isinstance(t, DTensor) else t for t in (*self.net.parameters(), *moments)]
        return sum(t.numel() * t.element_size() for t in local)

    def sums(self) -> list[float]:
        """Of all weights and moments, whole."""
        moments = [v for state in self.optimizer.state.values() for v in state.values()]
        whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in (*self.net.parameters(), *moments)]
        return [t.detach().double().sum().item() for t in whole]


@contextmanager
def counted_receipts() -> Iterator[list[int]]:
    """Sizes in bytes of what this rank receives of chunks, by `recv` or a broadcast of another rank."""
    sizes: list[int] = []
    recv, broadcast = dist.recv, dist.broadcast

    def received(tensor: torch.Tensor, **where: Any) -> Any:
        sizes.append(tensor.numel() * tensor.element_size())
        return recv(tensor, **where)

    def spread(tensor: torch.Tensor, **where: Any) -> Any:
        if dist.get_rank(where["group"]) != where["group_src"]:
            sizes.append(tensor.numel() * tensor.element_size())
        return broadcast(tensor, **where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_reads.dist, "recv", received)
        patch.setattr(shared_reads.dist, "broadcast", spread)
        yield sizes


def restored(store: Any, groups: Groups, before: Layout, after: Layout) -> dict[str, Any]:
    """Saves in one layout, restores into another; says what this rank read, and whether it has what was saved."""
    job = "-".join(f"{name}{ranks}" for name, ranks in (before, after))
    said: dict[str, Any] = {"read": [], "sums": []}
    if (old := groups[before[1]]) is not None:
        first = Run(before[0], old, 1)
        first.step()
        at = Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), store, old)
        at.save(first.tracked.shared(), first.tracked.of_this_rank(), 1, 1.0)
        said["saved"] = first.sums()
    dist.barrier()
    if (new := groups[after[1]]) is not None:
        second = Run(after[0], new, 2)
        counting = Counting(store)
        at = Checkpointer(CheckpointerSettings(job, 2, 1, "spec"), counting, new)
        with counted_receipts() as received:
            assert at.restore(second.tracked.shared(), second.tracked.put_back_own).restored == 1
        said |= {"read": counting.read, "sums": second.sums(), "received": sum(received), "own": second.own_bytes()}
    entry = read_entry(store, job, 1)
    assert isinstance(entry, Manifest)
    said["needed"] = entry.bytes_total
    dist.barrier()
    return said


def damaged(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """Restores after a large chunk of the newest of two checkpoints was damaged, and when no checkpoint is sound."""
    rank = dist.get_rank(group)
    run = Run("ddp", group, 1)
    at = Checkpointer(CheckpointerSettings("damaged", 1, 0, "spec"), store, group)
    for step in (1, 2):
        run.step()
        at.save(run.tracked.shared(), run.tracked.of_this_rank(), step, 1.0)
        if step == 1:
            first = run.sums()
    said: dict[str, Any] = {}
    for commit in (2, 1):
        entry = read_entry(store, "damaged", commit)
        assert isinstance(entry, Manifest)
        if rank == 0:
            chunk = max(entry.chunks, key=lambda c: c.size_bytes)
            store.put(f"jobs/damaged/chunks/{chunk.sha256[:2]}/{chunk.sha256}", bytes(chunk.size_bytes))
        dist.barrier(group)
        fresh = Run("ddp", group, 7)
        untouched = fresh.sums()
        report = Checkpointer(CheckpointerSettings("damaged", 4 - commit, 3, "spec"), store, group).restore(
            fresh.tracked.shared(), fresh.tracked.put_back_own
        )
        said[f"restored {commit}"] = report.restored
        said[f"damaged {commit}"] = [d.commit for d in report.damaged]
        said[f"same {commit}"] = fresh.sums() == (first if commit == 2 else untouched)
    return said


def unlike(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """Fetches chunks that some ranks need, in small waves; then with a store that is away for one rank, and with a fault in use."""
    rank, ranks = dist.get_rank(group), Ranks(group)
    at = Checkpointer(CheckpointerSettings("unlike", 1, 0, "spec"), store, group)
    at.save({str(n): torch.arange(400_000.0) + n for n in range(3)}, {}, 1, 1.0)
    entry = read_entry(store, "unlike", 1)
    assert isinstance(entry, Manifest)
    large = [n for n, chunk in enumerate(entry.chunks) if chunk.size_bytes > 300_000]
    needs = [large, large[:6], large[4:5], []]
    counting = Counting(store)
    handed: list[int] = []
    reads = SharedReads(ranks, entry, ChunkStore(counting, "unlike"))

    def use(number: int, body: Any) -> None:
        assert len(body) == entry.chunks[number].size_bytes
        handed.append(number)

    problems = reads.fetch(needs, use)
    said: dict[str, Any] = {"handed": handed == needs[rank], "problems": problems, "read": counting.read, "needs": len(large)}
    assert len(large) > 8
    away = SharedReads(ranks, entry, ChunkStore(Failing(store) if rank == 1 else store, "unlike"))
    try:
        away.fetch(needs, lambda number, body: None)
    except ObjectStoreUnavailableError:
        said["away"] = True

    def faulty(number: int, body: Any) -> None:
        if rank == 2:
            raise DamagedError("a piece cannot be")

    try:
        (WithoutRoom if rank == 2 else SharedReads)(ranks, entry, ChunkStore(store, "unlike")).fetch(needs, lambda number, body: None)
    except RankFailedError as error:
        said["room"] = str(error)
    said["faults"] = len(SharedReads(ranks, entry, ChunkStore(store, "unlike")).fetch(needs, faulty))
    return said


def in_each_process(store: Any, groups: Groups) -> dict[Any, Any]:
    said: dict[Any, Any] = {pair: restored(store, groups, *pair) for pair in PAIRS}
    if (two := groups[2]) is not None:
        said["damaged"] = damaged(store, two)
    dist.barrier()
    shared_reads.WAVE_BYTES = 1_000_000
    assert groups[4] is not None
    said["unlike"] = unlike(store, groups[4])
    return said


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[Any, Any]]]:
    """What each rank says."""
    yield run_gang(in_each_process, tmp_path_factory.mktemp("gang"), __name__)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_gang_reads_each_byte_once(answers: list[dict[Any, Any]], pair: tuple[Layout, Layout]) -> None:
    of_ranks = [answer[pair] for answer in answers]
    read = [found for said in of_ranks for found in said["read"]]
    assert len({key for key, _ in read}) == len(read), "a chunk was read twice"
    share = sum(size for _, size in read) / of_ranks[0]["needed"]
    most = max(sum(size for _, size in said["read"]) for said in of_ranks)
    print(f"{pair}: {share:.4f} of {of_ranks[0]['needed']} bytes, at most {most} by one rank")
    assert share <= MOST_READ
    for said in of_ranks[: pair[1][1]]:
        assert said["sums"] == pytest.approx(of_ranks[0]["saved"], rel=1e-12)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_rank_is_sent_no_more_than_it_needs(answers: list[dict[Any, Any]], pair: tuple[Layout, Layout]) -> None:
    of_ranks = [answer[pair] for answer in answers][: pair[1][1]]
    print(pair, [(said["received"], said["own"]) for said in of_ranks])
    for said in of_ranks:
        assert said["received"] <= MOST_READ * said["own"] + SMALL_BYTES


def test_ranks_share_what_they_read(answers: list[dict[Any, Any]]) -> None:
    of_ranks = [sum(size for _, size in answer[(("ddp", 2), ("ddp", 4))]["read"]) for answer in answers]
    assert max(of_ranks) < 1.3 * sum(of_ranks) / 4


def test_a_damaged_chunk_makes_all_ranks_begin_from_the_older_checkpoint(answers: list[dict[Any, Any]]) -> None:
    for answer in answers[:2]:
        assert answer["damaged"] == {
            "restored 2": 1,
            "damaged 2": [2],
            "same 2": True,
            "restored 1": None,
            "damaged 1": [2, 1],
            "same 1": True,
        }


def test_ranks_get_what_they_need_and_learn_of_each_others_faults(answers: list[dict[Any, Any]]) -> None:
    of_ranks = [answer["unlike"] for answer in answers]
    outcomes = [{key: said[key] for key in ("handed", "problems", "away", "room", "faults")} for said in of_ranks]
    assert outcomes == [{"handed": True, "problems": [], "away": True, "room": "MemoryError: no room", "faults": 1}] * 4
    read = [key for said in of_ranks for key, _ in said["read"]]
    assert len(set(read)) == len(read) == of_ranks[0]["needs"]
    assert of_ranks[3]["read"] == []


def test_a_state_without_tensors_is_restored() -> None:
    objects = MemoryObjectStore()
    Checkpointer(CheckpointerSettings("bare", 1, 0, "spec"), objects).save({"counter": {"epoch": 3}}, {}, 1, 1.0)
    state: dict[str, Any] = {"counter": {"epoch": 0}}
    assert Checkpointer(CheckpointerSettings("bare", 2, 1, "spec"), objects).restore(state, lambda own: None).restored == 1
    assert state == {"counter": {"epoch": 3}}
