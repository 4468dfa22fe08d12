"""One of two ranks with an FSDP2 state: how long a save holds it up, beside a plain copy and torch's own asynchronous saves.

Run as `checkpoint_stall.py RANK PORT FOLDER SAVES STATE_MB`; rank 0 prints one JSON line.
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
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor

from tests.bench.scripts.sharded_state import BYTES_A_LAYER, joined
from tests.support.fakes.folder_store import FolderObjectStore
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.share_estimate import share_bytes
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked

STEPS = 20


def main() -> None:
    rank, port, folder, saves = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    layers = max(1, round(int(sys.argv[5]) * 1e6 / BYTES_A_LAYER))
    store = FolderObjectStore(folder / f"rank-{rank}")
    helper = UploadHelper(store)  # as a session does: before there is a thread
    model, optimizer = joined(rank, port, layers)
    answer: dict[str, Any] = {"state_mb": _bytes(model, optimizer) * 2 / 1e6, "memcpy_ms": _memcpy_ms(model, optimizer, saves)}
    answer |= _ours(helper, store, model, optimizer, saves)
    helper.close()
    for name, kind in (("thread", AsyncCheckpointerType.THREAD), ("process", AsyncCheckpointerType.PROCESS)):
        answer[f"dcp_{name}"] = _dcp(folder, name, kind, model, optimizer, max(2, saves // 3))
    dist.barrier()
    if rank == 0:
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


def _ours(helper: UploadHelper, store: Any, model: Any, optimizer: Any, saves: int) -> dict[str, Any]:
    tracked = Tracked(model, optimizer)
    at = Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), store, helper=helper)
    at.guard(tracked.optimizers)
    at.claim()
    optimizer.step()
    steps_ms = _steps_ms(optimizer)
    at.prepare(share_bytes(tracked.tensors(), 2))  # as a session does after its first steps
    steps_beside_ms = _steps_ms(optimizer)

    def save(step: int) -> Callable[[], object]:
        return at.begin_save(tracked.shared(), tracked.of_this_rank(), step, float(step)).result

    stalls = _stalls_ms(save, optimizer, saves)
    at.close(60)
    return {
        "stall_ms": statistics.median(stalls[1:]),
        "first_stall_ms": stalls[0],
        "step_ms": statistics.median(steps_ms),
        "first_steps_beside_preparation_ms": steps_beside_ms[:8],
    }


def _steps_ms(optimizer: Any) -> list[float]:
    """Time of each of some steps of one rank, each rank making as many."""
    dist.barrier()
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - began) * 1000)
    return times


def _dcp(folder: Path, name: str, kind: AsyncCheckpointerType, model: Any, optimizer: Any, saves: int) -> dict[str, float]:
    def save(step: int) -> Callable[[], object]:
        shared, moments = get_state_dict(model, optimizer)
        future: Any = dcp.async_save(
            {"model": shared, "optimizer": moments}, checkpoint_id=folder / f"dcp-{name}-{step}", async_checkpointer_type=kind
        )
        return future.result

    stalls = _stalls_ms(save, optimizer, saves)
    return {"stall_ms": statistics.median(stalls[1:]), "first_stall_ms": stalls[0]}


def _stalls_ms(save: Callable[[int], Callable[[], object]], optimizer: Any, saves: int) -> list[float]:
    """How long each of these saves held this rank up; the state changes between them."""
    stalls = []
    for step in range(1, saves + 1):
        optimizer.step()
        dist.barrier()
        began = time.perf_counter()
        wait = save(step)
        stalls.append((time.perf_counter() - began) * 1000)
        wait()
    return stalls


def _memcpy_ms(model: Any, optimizer: Any, saves: int) -> float:
    """A copy of this rank's shards into memory that is there already, on both ranks at once."""
    sources = _shards(model, optimizer)
    targets = [torch.empty_like(t).fill_(0) for t in sources]
    times = []
    for _ in range(saves):
        dist.barrier()
        began = time.perf_counter()
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def _shards(model: Any, optimizer: Any) -> list[torch.Tensor]:
    moments = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return [t.to_local() if isinstance(t, DTensor) else t for t in (*(p.detach() for p in model.parameters()), *moments)]


def _bytes(model: Any, optimizer: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _shards(model, optimizer))


if __name__ == "__main__":
    main()
