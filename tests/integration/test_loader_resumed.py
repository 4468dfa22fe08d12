"""A job that reads by `session.loader`: killed, resumed on another number of ranks, its samples counted."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from tests.integration.session_support import JobRun, Runs
from tests.support.published_shards import published
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore

pytestmark = pytest.mark.stack

SAMPLES, BATCH, STEPS = 37, 8, 30
SCRIPT = f"""
import os, signal, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
from trainhouse.workers import Session

folder, workers, killed_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = Session.start()
model = torch.nn.Linear(1, 1)
wrapped = DistributedDataParallel(model) if session.world_size > 1 else model
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
if session._context.data is None:
    loader = session.loader(range({SAMPLES}), batch={BATCH}, workers=workers, decode=float)
else:
    loader = session.loader("train", batch={BATCH}, workers=workers, decode=lambda sample: float(sample["cls"]))
session.track(model=wrapped, optimizer=optimizer, loader=loader)
with open(f"{{folder}}/{{os.environ['TRAINHOUSE_EPOCH']}}-{{session.rank}}", "w", buffering=1) as used:
    for step in session.steps({STEPS}, save_every_steps=6):
        batch = next(loader)
        print(step, *map(int, batch.tolist()), file=used)
        if step == killed_at and session.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = wrapped(batch.float()[:, None] / 100).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        session.log(loss=loss)
        if step % 6 == 0 and killed_at:
            time.sleep(0.2)
"""


def used(folder: Path, run: JobRun, epoch: int, ranks: int) -> dict[int, list[int]]:
    """Samples of each step, those of all ranks in their order."""
    by_step: dict[int, list[int]] = {}
    for rank in range(ranks):
        for line in (folder / f"{epoch}-{rank}").read_text().splitlines():
            step, *samples = map(int, line.split())
            by_step.setdefault(step, []).extend(samples)
    assert by_step, run.stderr()
    return by_step


def reports(run: JobRun) -> list[dict[str, Any]]:
    """Reports of what steps read."""
    return [line[2] for line in run.events("DataRead")]  # type: ignore[misc]


def positions(run: JobRun) -> dict[int, int]:
    """First position of each step, as an attempt knows it of itself and of those before."""
    runs = [each for report in reports(run) for each in report.get("runs", ())]
    return {each["first_step"] + k: each["first_position"] + k * each["per_step"] for each in runs for k in range(each["steps"])}


def shards(run: JobRun) -> dict[int, set[str]]:
    """Shards of each step; the last report of a shard in a stretch counts."""
    stretches = [report["stretch"] for report in reports(run) if "stretch" in report]
    newest = {(stretch["first_step"], read["shard"]): read for stretch in stretches for read in stretch["shards"]}
    found: dict[int, set[str]] = {}
    for (_, shard), read in newest.items():
        for first, count in zip(read["first_steps"], read["steps"], strict=True):
            for step in range(first, first + count):
                found.setdefault(step, set()).add(shard)
    return found


@pytest.mark.parametrize("sizes", [None, (5, 1, 29, 2)])
def test_a_killed_gang_goes_on_with_fewer_ranks_and_uses_each_sample_once_a_pass(
    runs: Runs, tmp_path: Path, sizes: tuple[int, ...] | None
) -> None:
    """A list, and a published split in shards of these sizes, read off the store."""
    spec: dict[str, object] = {}
    if sizes is not None:
        store = runs.store
        keys = {"access_key": store.access_key, "secret_key": SecretStr(store.secret_key)}
        objects = S3ObjectStore(StoreSettings(endpoint=store.endpoint, bucket=store.bucket, **keys))
        spec = {"data": {"dataset": published(tmp_path / "shards", sizes, objects)}}
    cache = {"TRAINHOUSE_DATA_CACHE_DIR": str(tmp_path / "cache"), "TRAINHOUSE_DATA_CACHE_GIB": "0.1"}
    first = runs.start(SCRIPT, (str(tmp_path), "2", "20"), environment=cache, **spec)
    assert first.exit_of(0).signal == 9
    until(lambda: first.exit_of(1) is not None)
    before = used(tmp_path, first, 0, 2)
    first.end()
    second = runs.start(SCRIPT, (str(tmp_path), "0", "0"), epoch=1, ranks=1, environment=cache, **spec)
    assert second.exit_of().exit_code == 0, second.stderr()
    after = used(tmp_path, second, 1, 1)
    resumed_at = second.events("CheckpointRestored")[0][2]["step"]  # type: ignore[index, call-overload]
    assert 0 < resumed_at <= 20 and min(after) == resumed_at and max(after) == STEPS - 1
    samples = [sample for step in range(resumed_at) for sample in before[step]] + [s for step in sorted(after) for s in after[step]]
    assert len(samples) == STEPS * BATCH
    for data_pass in range(len(samples) // SAMPLES):
        assert Counter(samples[data_pass * SAMPLES : (data_pass + 1) * SAMPLES]) == Counter(range(SAMPLES))
    again = {step: before[step] for step in before if step >= resumed_at and len(before[step]) == BATCH}
    assert again == {step: after[step] for step in again}  # what the kill lost comes again alike, on one rank
    assert (tmp_path / "cache").exists() == (sizes is not None)
    assert positions(second) == {step: step * BATCH for step in range(STEPS)}  # of the surviving history, each step once
    if sizes is not None:
        published_in = np.repeat(range(len(sizes)), sizes)  # a shard is known by the samples that only it has
        by_step = {step: before[step] for step in range(resumed_at)} | after
        found = shards(second)
        assert {step: len(names) for step, names in found.items()} == {
            s: len({published_in[n] for n in used}) for s, used in by_step.items()
        }
        assert len({name for names in found.values() for name in names}) == len(sizes)
