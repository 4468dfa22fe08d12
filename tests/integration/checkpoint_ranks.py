"""What one rank of a checkpoint test does, started by test_checkpoint_ddp with the environment that an agent sets. Prints one JSON line."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreUnavailableError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.state import rng
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.workers.session.process.exit_guard import wait_until_let_go


class WatchedStore(S3ObjectStore):
    """Counts what goes up, and does something at the n-th write: `before` or after it."""

    def __init__(self) -> None:
        super().__init__(StoreSettings(deadline_s=30.0))
        self.sent_bytes = 0
        self.act_at: tuple[str, bool, Any] | None = None

    def put(self, key: str, body: Body) -> None:
        self._act(key, True)
        super().put(key, body)
        self.sent_bytes += len(body)
        self._act(key, False)

    def put_if_absent(self, key: str, body: Body) -> bool:
        self._act(key, True)
        done = super().put_if_absent(key, body)
        self._act(key, False)
        return done

    def _act(self, key: str, before: bool) -> None:
        if self.act_at is not None and self.act_at[0] in key and before is self.act_at[1]:
            act, self.act_at = self.act_at[2], None
            act()


class Rank:
    """A DDP training whose every bit depends on its history: dropout, generators of three kinds, Adam, a schedule."""

    def __init__(self, job: str, epoch: int, seed: int) -> None:
        self.rank = dist.get_rank()
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Embedding(3000, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 7))
        self.model = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.7)
        self.state = {"model": self.net, "optimizer": self.optimizer, "schedule": self.schedule}
        self.step = 0
        for reseed in (torch.manual_seed, random.seed, np.random.seed):
            reseed((seed + 1 + self.rank) % 2**32)
        self.store = WatchedStore()
        self.told: list[str] = []
        self.checkpoints = Checkpointer(
            CheckpointerSettings(job, epoch, epoch - 1, "spec"), self.store, on_event=lambda name, fields: self.told.append(name)
        )

    def train(self, steps: int) -> None:
        for _ in range(steps):
            words = torch.randint(0, 3000, (4, 9)) + random.randint(0, 0)
            target = torch.tensor(np.random.rand(4, 9, 7), dtype=torch.float32)
            self.optimizer.zero_grad()
            (self.model(words) - target * random.random()).square().mean().backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1

    def own(self) -> dict[str, Any]:
        return {"rng": rng.capture(), "step": self.step, "rank": self.rank}

    def take(self, own: dict[str, Any]) -> None:
        assert own["rank"] == self.rank, "every rank gets its own"
        rng.restore(own["rng"])
        self.step = own["step"]

    def save(self) -> int:
        return self.checkpoints.save(self.state, self.own(), self.step, 100.0 + self.step).commit

    def restore(self) -> dict[str, Any]:
        report = self.checkpoints.restore(self.state, self.take)
        return {"restored": report.restored, "step": report.step, "damaged": [d.commit for d in report.damaged]}

    def fingerprint(self) -> str:
        moments = [v for s in self.optimizer.state_dict()["state"].values() for v in s.values()]
        tensors = [*self.net.state_dict().values(), *moments, torch.get_rng_state(), torch.tensor(self.schedule.get_last_lr())]
        digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors))
        digest.update(repr((random.getstate(), np.random.get_state()[1].tolist())).encode())  # type: ignore[index]
        return digest.hexdigest()


def seed_of(job: str) -> int:
    """A seed of the job's own: equal states would share chunks, and one job would find there what another sent."""
    return zlib.crc32(job.encode())


def straight(job: str, folder: Path) -> dict[str, Any]:
    """Six steps without a break."""
    rank = Rank(job, 1, 5)
    rank.train(6)
    return {"end": rank.fingerprint()}


def save_and_resume(job: str, folder: Path) -> dict[str, Any]:
    """Three steps, a checkpoint, a step that is lost; then a new attempt that begins from other seeds, and three more."""
    first = Rank(job, 1, 5)
    first.train(3)
    first.save()
    sent = first.store.sent_bytes
    first.train(1)
    second = Rank(job, 2, 99)
    report = second.restore()
    second.train(3)
    return {"end": second.fingerprint(), "sent_bytes": sent, "told": second.told, **report}


def two_checkpoints(job: str, folder: Path) -> dict[str, Any]:
    """Leaves checkpoints of steps 1 and 2."""
    rank = Rank(job, 1, seed_of(job))
    prints = []
    for _ in range(2):
        rank.train(1)
        rank.save()
        prints.append(rank.fingerprint())
    return {"prints": prints}


def only_restore(job: str, folder: Path) -> dict[str, Any]:
    """What an attempt of epoch 2 finds."""
    rank = Rank(job, 2, 77)
    return rank.restore() | {"print": rank.fingerprint(), "told": rank.told}


def stale(job: str, folder: Path) -> dict[str, Any]:
    """A newer attempt claims while this one trains; both ranks must hear of it."""
    rank = Rank(job, 1, seed_of(job))
    rank.train(1)
    rank.save()
    if rank.rank == 0:
        # The newer attempt: another process would do the same puts.
        from trainhouse.checkpointing.chain.commits import CommitChain, Writer
        from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId

        CommitChain(WatchedStore(), Writer(JobId(job), Epoch(2), AttemptNumber(1), "newer")).claim(5.0)
    rank.train(1)
    try:
        rank.save()
    except CheckpointError as error:
        return {"error": type(error).__name__}
    return {"error": None}


def one_rank_fails(job: str, folder: Path) -> dict[str, Any]:
    """Rank 1 cannot upload: nobody commits, everybody hears the same, and the next save works."""
    rank = Rank(job, 1, seed_of(job))
    rank.train(1)

    def fail() -> None:
        raise ObjectStoreUnavailableError("rank 1 has no network")

    if rank.rank == 1:
        rank.store.act_at = ("/chunks/", True, fail)
    try:
        rank.save()
        error = None
    except CheckpointError as raised:
        error = type(raised).__name__
    return {"error": error, "commit": rank.save(), "told": rank.told}


def sharded(job: str, folder: Path) -> dict[str, Any]:
    """Sharded tensors, saved by rows and restored by columns and whole."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(120_000, dtype=torch.float32).reshape(300, 400)
    store = WatchedStore()
    saved = Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), store).save({"w": distribute_tensor(whole, mesh, [Shard(0)])}, {}, 1, 1.0)
    columns: dict[str, Any] = {"w": distribute_tensor(torch.zeros(300, 400), mesh, [Shard(1)])}
    plain: dict[str, Any] = {"w": torch.zeros(300, 400)}
    Checkpointer(CheckpointerSettings(job, 2, 1, "spec"), store).restore(columns, lambda own: None)
    Checkpointer(CheckpointerSettings(job, 3, 2, "spec"), store).restore(plain, lambda own: None)
    local = columns["w"].to_local()
    rank, width = dist.get_rank(), 400 // dist.get_world_size()
    return {
        "columns": torch.equal(local, whole[:, rank * width : (rank + 1) * width]),
        "plain": torch.equal(plain["w"], whole),
        "sent_bytes": store.sent_bytes,
        "bytes_total": saved.bytes_total,
    }


def resume_train_and_die(job: str, folder: Path) -> dict[str, Any]:
    """Restores, checks against what was noted when that step was saved, and dies by SIGKILL while it saves the next."""
    epoch, dying, prefix, before = int(os.environ["EPOCH"]), int(os.environ["DYING"]), os.environ["AT"], os.environ["BEFORE"] == "1"
    rank = Rank(job, epoch, seed_of(job))
    report = rank.restore()
    noted = folder / f"{rank.step}-{rank.rank}"
    same = noted.read_text() == rank.fingerprint() if rank.step else True
    # Each attempt goes another way, so that a mixture of two attempts' chunks could not pass for either.
    torch.manual_seed(seed_of(f"{job}{epoch}{rank.rank}"))
    rank.train(1)
    if rank.step == 1 and dying >= 0:
        (folder / f"1-{rank.rank}").write_text(rank.fingerprint())
        rank.save()
        rank.train(1)
    (folder / f"{rank.step}-{rank.rank}").write_text(rank.fingerprint())
    print(json.dumps(report | {"same": same, "saving": rank.step}), flush=True)
    if rank.rank == dying:
        rank.store.act_at = (prefix, before, lambda: os.kill(os.getpid(), signal.SIGKILL))
    rank.save()
    return report | {"same": same, "saving": rank.step}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=90))
    scenario, job, folder = sys.argv[1:4]
    print(json.dumps(globals()[scenario](job, Path(folder))), flush=True)
    dist.destroy_process_group()
    wait_until_let_go()  # as a session does


if __name__ == "__main__":
    main()
