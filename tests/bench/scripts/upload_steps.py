"""One of two ranks with an FSDP2 state: steps alone, beside an upload, and beside torch's own asynchronous saves.

Run as `upload_steps.py RANK PORT FOLDER LAYERS SAVES ENDPOINT BUCKET ACCESS_KEY SECRET_KEY STORE_PID`; rank 0 prints one JSON line.
Whether a save has ended is agreed before each step, so that both ranks make as many.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from tests.bench.scripts.sharded_state import WIDTH, joined
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked

STEPS = 15
Done = Callable[[], bool]


def main() -> None:
    rank, port, folder, layers, saves = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    endpoint, bucket, access_key, secret_key, store_pid = sys.argv[6:11]
    keys = {"endpoint": endpoint, "bucket": bucket, "access_key": access_key, "secret_key": secret_key}
    settings = StoreSettings.model_validate(keys)
    helper = UploadHelper(settings)  # as a session does: before there is a thread
    model, optimizer = joined(rank, port, layers)
    training = Training(model, optimizer)
    tracked = Tracked(model, optimizer)
    at = Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), S3ObjectStore(settings), helper=helper)
    at.guard(tracked.optimizers)
    at.claim()
    for _ in range(3):
        training.step()

    def ours(step: int) -> tuple[Done, Callable[[], object]]:
        pending = at.begin_save(tracked.shared(), tracked.of_this_rank(), step, float(step))
        return lambda: pending.done, pending.result

    of_saves = dist.new_group()  # torch's saves use collectives in a thread, which must not meet those of training

    def by_torch(kind: AsyncCheckpointerType) -> Callable[[int], tuple[Done, Callable[[], object]]]:
        def save(step: int) -> tuple[Done, Callable[[], object]]:
            shared, moments = get_state_dict(model, optimizer)
            state = {"model": shared, "optimizer": moments}
            future: Any = dcp.async_save(
                state, checkpoint_id=folder / f"{kind.name}-{step}", async_checkpointer_type=kind, process_group=of_saves
            )
            return future.done, future.result

        return save

    store = psutil.Process(int(store_pid))
    before_s = _cpu_s(store)
    answer = {"trainhouse": training.beside(ours, saves, psutil.Process(helper.pid))}
    store_cpu_s = _cpu_s(store) - before_s
    at.close(60)
    for name, kind in (("dcp_thread", AsyncCheckpointerType.THREAD), ("dcp_process", AsyncCheckpointerType.PROCESS)):
        answer[name] = training.beside(by_torch(kind), saves, None)
    dist.barrier()
    if rank == 0:
        print(json.dumps({"state_mb": layers * 12 * WIDTH * WIDTH / 1e6, "store_cpu_s_per_save": store_cpu_s / saves} | answer), flush=True)
    dist.destroy_process_group()


class Training:
    """Steps of one rank."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer

    def step(self) -> tuple[float, float]:
        """Milliseconds of the clock, and of this process's processor time, all threads of it together."""
        began, began_cpu = time.perf_counter(), time.process_time()
        self._optimizer.zero_grad()
        self._model(torch.randn(64, WIDTH)).square().mean().backward()
        self._optimizer.step()
        return (time.perf_counter() - began) * 1000, (time.process_time() - began_cpu) * 1000

    def beside(
        self, save: Callable[[int], tuple[Done, Callable[[], object]]], saves: int, helper: psutil.Process | None
    ) -> dict[str, float]:
        """Medians of steps without and with an upload under way, by turns; the first save is not counted."""
        alone: list[tuple[float, float]] = []
        during: list[tuple[float, float]] = []
        helper_s = 0.0
        for number in range(1, saves + 2):
            found = [self.step() for _ in range(STEPS)]
            before_s = _cpu_s(helper) if helper else 0.0
            done, wait = save(number)
            met = []
            while not _all(done()):
                met.append(self.step())
            wait()
            if number > 1:
                alone += found
                during += met[:-1]  # the last one may have been alone for a part of it
                helper_s += _cpu_s(helper) - before_s if helper else 0.0
        plain, beside = statistics.median(t for t, _ in alone), statistics.median(t for t, _ in during) if during else float("nan")
        cpu, cpu_beside = statistics.median(c for _, c in alone), statistics.median(c for _, c in during) if during else float("nan")
        return {
            "step_ms": plain,
            "step_during_ms": beside,
            "times": beside / plain,
            "rank_cpu_ms": cpu,
            "rank_cpu_during_ms": cpu_beside,
            "rank_cpu_times": cpu_beside / cpu,
            "steps_during": len(during),
            "helper_cpu_s_per_save": helper_s / saves,
        }


def _all(mine: bool) -> bool:
    """Whether it is true on both ranks."""
    flag = torch.tensor(int(mine))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


def _cpu_s(process: psutil.Process) -> float:
    found = process.cpu_times()
    return float(found.user + found.system)


if __name__ == "__main__":
    main()
