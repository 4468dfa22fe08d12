"""A gang that is killed by SIGKILL, shrinks and grows: it takes the samples of one that none of this happens to."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.support.example_layouts import Trained, corpus
from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.chain.commits import entries_newest_first
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.training import Training
from trainhouse.workers.examples.text import Windows

RANKS, STEPS, SAVED_EVERY = 2, 20, 4
KEPT = Training(global_batch=12, micro_batch=3)
ATTEMPTS = {"elastic": ((2, 0, 6), (1, 4, 14), (2, 12, None)), "calm": ((2, 0, None),)}
"""By job the ranks of each attempt, the step that it begins with, and the one in which its last rank is killed."""
MOST_S = 240.0


def _rank(rank: int, size: int, job: str, epoch: int, killed_at: int | None, folder: Path) -> None:
    """One rank of an attempt: a line of windows for each step, and at its end the weights."""
    torch.set_num_threads(1)
    store = FolderObjectStore(folder / "store")
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/{job}-{epoch}", rank=rank, world_size=size)
    session = Trained(Parallelism(dp=size), RANKS, store, job, epoch, training=KEPT).session()
    torch.manual_seed(0)
    inner = session.prepare(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
    model = DistributedDataParallel(inner) if size > 1 else inner
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    share = KEPT.micro_batch * session.training.accumulation  # type: ignore[operator]
    loader = Windows(corpus().train[: 3 * 40 + 1], 3, share, 0, session.data_rank, session.data_size)  # a pass ends within a run
    session.track(model=model, optimizer=optimizer, loader=loader)
    with (folder / f"{job}-{epoch}-{rank}.jsonl").open("w") as lines:
        for step in session.steps(STEPS, save_every_steps=SAVED_EVERY):
            windows = next(loader)
            print(json.dumps([step, windows.tolist()]), file=lines, flush=True)
            if step == killed_at and rank == size - 1:
                until(lambda: _committed(store, job) == step - step % SAVED_EVERY, "a checkpoint", every_s=0.02)  # noqa: B023
                os.kill(os.getpid(), signal.SIGKILL)
            for part in session.accumulate(windows.chunk(session.training.accumulation or 1)):
                session.backward(model(part / 255).square().mean())
            session.optimizer_step(optimizer)
    session.close()
    (folder / f"{job}-{rank}.json").write_text(json.dumps([float(x) for p in model.parameters() for x in p.detach().flatten()]))
    if size > 1:
        dist.destroy_process_group()


def _committed(store: FolderObjectStore, job: str) -> int:
    """Step of the newest checkpoint."""
    return next((entry.step for _, entry in entries_newest_first(store, job) if isinstance(entry, Manifest)), 0)


@contextmanager
def _started(*arguments: Any, size: int) -> Iterator[list[BaseProcess]]:
    """The ranks of an attempt; killed at the end of the block, as a node kills those that are left of a gang."""
    start = mp.get_context("forkserver")
    start.set_forkserver_preload([__name__])
    ranks = [start.Process(target=_rank, args=(rank, size, *arguments), daemon=True) for rank in range(size)]
    for process in ranks:
        process.start()
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.join()


def _trained(job: str, folder: Path) -> tuple[dict[int, list[list[int]]], list[float]]:
    """Windows of each step that counts, over all ranks, and the final weights of rank 0."""
    steps: dict[int, list[list[int]]] = {}
    for epoch, (size, begins, killed_at) in enumerate(ATTEMPTS[job], 1):
        with _started(job, epoch, killed_at, folder, size=size) as ranks:
            if killed_at is None:
                for process in ranks:
                    process.join(MOST_S)
                    assert process.exitcode == 0
            else:
                ranks[-1].join(MOST_S)
                assert ranks[-1].exitcode == -signal.SIGKILL
        steps = {step: windows for step, windows in steps.items() if step < begins}  # the others are done again
        for rank in range(size):
            taken = [json.loads(line) for line in (folder / f"{job}-{epoch}-{rank}.jsonl").read_text().splitlines()]
            assert taken[0][0] == begins
            for step, windows in taken:
                steps.setdefault(step, []).extend(windows)
    return steps, json.loads((folder / f"{job}-0.json").read_text())


def test_a_gang_that_is_killed_shrinks_and_grows_takes_the_samples_of_one_that_does_not(tmp_path: Path) -> None:
    (elastic, weights), (calm, calm_weights) = (_trained(job, tmp_path) for job in ("elastic", "calm"))
    assert sorted(elastic) == sorted(calm) == list(range(STEPS))
    for step in range(STEPS):
        assert sorted(elastic[step]) == sorted(calm[step]) and len(calm[step]) == 12, f"step {step}"
    assert weights == pytest.approx(calm_weights, rel=1e-5)
