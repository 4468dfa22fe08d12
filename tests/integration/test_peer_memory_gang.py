"""A gang of FSDP2 that loses a node, with the memory that it held: the rest comes from the other node's memory, each chunk once."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.gloo_gang import Groups, run_gang
from tests.support.peer_holders import DeskPeers, holding
from trainhouse.checkpointing.chain.chunks import chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked

WORLD = 2
WIDTH = 512


def tracked(group: Any, seed: int) -> Tracked:
    """A model in shards of all ranks, with moments."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    return Tracked(model, optimizer)


def values(found: Tracked) -> dict[str, float]:
    """Sums of this rank's shards."""
    return {name: float(p.to_local().double().sum()) for name, p in found.model.named_parameters()}  # type: ignore[union-attr]


def work(folder: str, _: Any, groups: Groups) -> dict[Any, Any]:
    """One rank: a save with a node for each rank, and the next attempt's restore without the first node and what it held."""
    group: Any = groups[WORLD]
    rank = group.rank()
    store = FolderObjectStore(Path(folder))
    helper = UploadHelper(store)
    found = tracked(group, 1)
    with holding(store, "node-0", "r0") if rank == 0 else nullcontext():
        dist.barrier(group)
        peers = DeskPeers(store, Place(f"node-{rank}", f"r{rank}"), Lease("job", 1))
        at = Checkpointer(CheckpointerSettings("job", 1, 0, "spec"), store, group, helper=helper, peers=peers)
        at.save(found.shared(), found.of_this_rank(), 7, 1.0)
        at.close()
    held = manifest_of(store).held
    if rank == 0:
        for sha256 in chunks_of(store, "node-1").keys() - chunks_of(store, "node-0").keys():
            store.delete(chunk_key(sha256, chunks_prefix("job")))
    dist.barrier(group)
    fresh = tracked(group, 2)
    peers = DeskPeers(store, Place("node-2"), Lease("job", 2))
    at = Checkpointer(CheckpointerSettings("job", 2, 1, "spec"), store, group, peers=peers)
    report = at.restore(fresh.shared(), fresh.put_back_own)
    alike = values(fresh) == values(found) and report.step == 7
    return {"alike": alike, "held": held, "bytes": dict(report.peer_bytes), "failures": report.peer_failures}


def manifest_of(store: FolderObjectStore) -> Manifest:
    """The first checkpoint, after the claim."""
    manifest = read_entry(store, "job", 1)
    assert isinstance(manifest, Manifest)
    return manifest


def chunks_of(store: FolderObjectStore, node_id: str) -> dict[str, int]:
    """Sizes of the chunks that a node held, by hash."""
    manifest = manifest_of(store)
    held = [manifest.chunks[h.first : h.first + h.count] for h in manifest.held if h.node_id == node_id]
    return {chunk.sha256: chunk.size_bytes for chunks in held for chunk in chunks}


def test_a_lost_node_takes_what_it_held_and_no_more(tmp_path: Path) -> None:
    store = FolderObjectStore(tmp_path / "objects")
    with holding(store, "node-1", "r1"):
        ranks = run_gang(partial(work, str(tmp_path / "objects")), tmp_path, __name__, WORLD)
    assert [rank["alike"] for rank in ranks] == [True] * WORLD
    assert [held.node_id for held in ranks[0]["held"]] == ["node-1", "node-0"], "each rank's share is with the other's node"
    left, lost = chunks_of(store, "node-1"), chunks_of(store, "node-0")
    assert sum(held.count for held in ranks[0]["held"]) == len(manifest_of(store).chunks)
    read = sum(rank["bytes"].get("node-1", 0) for rank in ranks)
    assert sum(left[sha256] for sha256 in left.keys() - lost.keys()) <= read <= sum(left.values()), "each chunk is read once"
    assert {name for rank in ranks for name in rank["bytes"]} == {"node-1"}
    assert {failure for rank in ranks for failure in rank["failures"]} == {"node-0: it holds nothing in memory any more"}
