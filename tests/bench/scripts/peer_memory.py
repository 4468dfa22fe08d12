"""One of two ranks with an FSDP2 state: how long a restore takes from peers' memory, from the store, and by torch's own local load.

Run as `peer_memory.py RANK PORT FOLDER STATE_MB REPEATS`; rank 0 prints one JSON line. Each rank has a node of its own, which holds the
other's chunks; the store is a folder on this disk.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from tests.bench.scripts.sharded_state import BYTES_A_LAYER, joined
from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.peer_holders import DeskPeers, holding
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.lease.access_rule import Lease
from trainhouse.checkpointing.peer_memory.holder_choice import Place
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked


def main() -> None:
    rank, port, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    layers, repeats = max(1, int(sys.argv[4]) * 1_000_000 // BYTES_A_LAYER), int(sys.argv[5])
    store = FolderObjectStore(folder)
    helper = UploadHelper(store)  # as a session does: before there is a thread
    model, optimizer = joined(rank, port, layers)
    tracked = Tracked(model, optimizer)
    with holding(store, f"node-{rank}", f"r{rank}", budget_bytes=4 * layers * BYTES_A_LAYER):
        dist.barrier()
        answer = _measured(rank, folder, store, helper, tracked, model, optimizer, repeats)
        dist.barrier()
    if rank == 0:
        print(json.dumps({"state_mb": layers * BYTES_A_LAYER / 1e6} | answer), flush=True)
    dist.destroy_process_group()


def _measured(
    rank: int, folder: Path, store: Any, helper: UploadHelper, tracked: Tracked, model: Any, optimizer: Any, repeats: int
) -> dict[str, Any]:
    def peers(epoch: int) -> DeskPeers:
        return DeskPeers(store, Place(f"node-{rank}", f"r{rank}"), Lease("bench", epoch))

    at = Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), store, helper=helper, peers=peers(1))
    saved = at.save(tracked.shared(), tracked.of_this_rank(), 1, 1.0)
    at.close()
    shared, moments = get_state_dict(model, optimizer)
    dcp.save({"model": shared, "optimizer": moments}, checkpoint_id=folder / "dcp")
    bytes_from_peers = []

    def restore(epoch: int, from_peers: bool) -> float:
        next_attempt = Checkpointer(
            CheckpointerSettings("bench", epoch, epoch - 1, "spec"), store, peers=peers(epoch) if from_peers else None
        )
        next_attempt.claim()
        took_s = _timed(lambda: bytes_from_peers.append(_restored(next_attempt, tracked)))
        next_attempt.close()
        return took_s

    def load() -> None:
        values, of_optimizer = get_state_dict(model, optimizer)
        dcp.load({"model": values, "optimizer": of_optimizer}, checkpoint_id=folder / "dcp")

    times: dict[str, list[float]] = {"peer_memory_s": [], "store_s": [], "dcp_load_s": []}
    for repeat in range(repeats):
        times["peer_memory_s"].append(restore(2 + 2 * repeat, True))
        times["store_s"].append(restore(3 + 2 * repeat, False))
        times["dcp_load_s"].append(_timed(load))
    medians = {name: statistics.median(found) for name, found in times.items()}
    of_peers = torch.tensor(sum(bytes_from_peers[0].values()))
    dist.all_reduce(of_peers)
    return medians | {"from_peers_share": int(of_peers) / saved.bytes_total, "save_s": saved.stage_s + saved.upload_s}


def _restored(at: Checkpointer, tracked: Tracked) -> dict[str, int]:
    report = at.restore(tracked.shared(), tracked.put_back_own)
    assert report.restored is not None
    return dict(report.peer_bytes)


def _timed(work: Callable[[], object]) -> float:
    """Seconds until all ranks have done it."""
    dist.barrier()
    began_s = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
