"""What a save costs training on a CUDA device: one rank, beside a plain copy to pinned memory and torch's asynchronous saves.

Not part of `make bench`, which has no device: `python -m tests.bench.device_stall [GIGABYTES …]` on a machine with one.
TRAINHOUSE_BENCH_PEERS=0 leaves the peers out, of which one takes minutes for 10 GB.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from tests.bench import report
from tests.support.fakes.folder_store import FolderObjectStore
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.share_estimate import share_bytes
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked

WIDTH, SAVES, STEPS = 8192, 5, 30
Wait = Callable[[], object]


class Training:
    """A model whose state has about so many bytes, and steps that take the device some 10 ms."""

    def __init__(self, gigabytes: float) -> None:
        layers = max(1, round(gigabytes * 1e9 / (12 * WIDTH * WIDTH)))
        self.model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        self._left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def step(self) -> None:
        for _ in range(6):
            self._left @ self._left
        self.optimizer.step()

    def tensors(self) -> list[torch.Tensor]:
        moments = [t for state in self.optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor) and t.is_cuda]
        return [*(p.detach() for p in self.model.parameters()), *moments]

    def steps_ms(self, save: Callable[[], Wait] | None = None) -> tuple[float, float, Wait]:
        """Time of STEPS steps on the device with a save before them, of the call alone, and what waits for its end."""
        torch.cuda.synchronize()
        began, wait = time.perf_counter(), _nothing
        if save is not None:
            wait = save()
        called = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1000, (called - began) * 1000, wait


def main() -> None:
    """Prints one line for each size."""
    folder = Path(mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        for gigabytes in map(float, sys.argv[1:] or ("2",)):
            _measure(gigabytes, folder / str(gigabytes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(gigabytes: float, folder: Path) -> None:
    folder.mkdir()
    store = FolderObjectStore(folder / "store")
    helper = UploadHelper(store)
    training = Training(gigabytes)
    training.steps_ms()
    plain_ms = statistics.median(training.steps_ms()[0] for _ in range(5))
    tensors = training.tensors()
    answer: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "state_gb": sum(t.numel() * t.element_size() for t in tensors) / 1e9,
        "step_ms": plain_ms / STEPS,
        "memcpy_ms": _memcpy_ms(tensors),
    }
    answer["trainhouse"] = _ours(training, plain_ms, helper, store)
    helper.close()
    with_peers = os.environ.get("TRAINHOUSE_BENCH_PEERS", "1") != "0"
    options = {} if not with_peers else {"thread": None, "pinned_async_staging": StagingOptions(True, True, True, True)}
    for name, option in options.items():
        try:
            answer[f"dcp_{name}"] = _dcp(training, plain_ms, folder / name, option)
        except Exception as error:  # a peer that fails here is said so, and does not hide the others' figures
            answer[f"dcp_{name}"] = repr(error)
        shutil.rmtree(folder / name, ignore_errors=True)
    report.line("device_stall", unit="ms", saves=SAVES, steps=STEPS, **answer)


def _memcpy_ms(tensors: list[torch.Tensor]) -> float:
    targets = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for target, source in zip(targets, tensors, strict=True):
            target.copy_(source, non_blocking=True)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def _ours(training: Training, plain_ms: float, helper: UploadHelper, store: FolderObjectStore) -> dict[str, float]:
    tracked = Tracked(training.model, training.optimizer)
    at = Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), store, helper=helper)
    at.guard(tracked.optimizers)
    at.claim()
    numbers = iter(range(1, 1000))

    def save() -> Wait:
        step = next(numbers)
        return at.begin_save(tracked.shared(), tracked.of_this_rank(), step, float(step)).result

    # Memory of the first save is made ready beside the first steps, as a session has it done: what that costs those steps is told apart.
    at.prepare(share_bytes(tracked.tensors(), holders=1))
    beside = []
    while len(beside) < 3 or any(thread.name == "checkpoint-memory" for thread in threading.enumerate()):
        beside.append(training.steps_ms()[0] - plain_ms)
    found = _saves(training, plain_ms, save)
    at.close(60)
    return found | {"preparation_cost_ms": sum(beside), "preparation_steps": len(beside) * STEPS}


def _dcp(training: Training, plain_ms: float, folder: Path, options: StagingOptions | None) -> dict[str, float]:
    stager = DefaultStager(options) if options is not None else None
    numbers = iter(range(1, 1000))

    def save() -> Wait:
        number = next(numbers)
        begun: Any = dcp.async_save(
            {f"tensor-{place}": tensor for place, tensor in enumerate(training.tensors())},
            checkpoint_id=folder / str(number),
            async_checkpointer_type=AsyncCheckpointerType.THREAD,
            **({} if stager is None else {"async_stager": stager}),
        )

        def wait() -> None:
            if stager is not None:
                begun.staging_completion.result()
                begun.upload_completion.result()
            else:
                begun.result()
            shutil.rmtree(folder / str(number), ignore_errors=True)

        return wait

    found = _saves(training, plain_ms, save)
    if stager is not None:
        stager.close()
    return found


def _saves(training: Training, plain_ms: float, save: Callable[[], Wait]) -> dict[str, float]:
    """`call_ms`: until the call returns; `cost_ms`: by how much the steps behind it come later, which is all that training notices."""
    calls, costs, ends = [], [], []
    for _ in range(SAVES):
        took_ms, call_ms, wait = training.steps_ms(save)
        began = time.perf_counter()
        wait()
        ends.append((time.perf_counter() - began) * 1000 + took_ms)
        calls.append(call_ms)
        costs.append(took_ms - plain_ms)
    return {
        "call_ms": statistics.median(calls[1:]),
        "cost_ms": statistics.median(costs[1:]),
        "first_call_ms": calls[0],
        "first_cost_ms": costs[0],
        "durable_after_ms": statistics.median(ends[1:]),
    }


def _nothing() -> None:
    """No save was begun."""


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "4")
    main()
