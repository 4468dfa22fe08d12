"""The object store is killed while it is written to and read: nobody is told a lie, and all goes on when it is back."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
KILLS = 3


class Worker(threading.Thread):
    """Works in a loop until told to stop; keeps its first error."""

    def __init__(self, server: StoreServer) -> None:
        super().__init__(daemon=True)
        given: dict[str, Any] = {"endpoint": server.endpoint, "access_key": server.access_key, "secret_key": server.secret_key}
        self.store = S3ObjectStore(StoreSettings(**given, deadline_s=240.0, read_timeout_s=10.0))
        self.stop = threading.Event()
        self.error: Exception | None = None
        self.rounds = 0

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.once()
                self.rounds += 1
        except Exception as error:
            self.error = error

    def once(self) -> None:
        raise NotImplementedError


class Objects(Worker):
    """Writes, lists and reads back: what was acknowledged is there, ever after."""

    def once(self) -> None:
        body = os.urandom(200_000)
        key = f"outage/{self.rounds:08d}"
        assert self.store.put_if_absent(key, body), "nobody else writes here"
        assert self.store.get(key) == body
        earlier = random.Random(self.rounds).randrange(self.rounds + 1)
        assert self.store.stat(f"outage/{earlier:08d}") is not None
        self.store.put(f"plain/{self.rounds}", body)
        assert self.store.get(f"plain/{self.rounds}") == body
        assert len(list(self.store.list("outage/"))) == self.rounds + 1


class Checkpoints(Worker):
    """Saves and restores: no outage is taken for damage, and no commit is lost or doubled."""

    def once(self) -> None:
        epoch = self.rounds + 1
        at = Checkpointer(CheckpointerSettings("outage", epoch, epoch, "spec"), self.store)
        state: dict[str, Any] = {"w": torch.zeros(200_000)}
        report = at.restore(state, lambda own: None)
        assert report.damaged == () and (report.step == self.rounds) and float(state["w"][7]) == self.rounds
        state["w"] += 1
        at.save(state, {}, self.rounds + 1, time.time())


@pytest.mark.parametrize("kind", [Objects, Checkpoints])
def test_kill_9_of_the_store_loses_nothing(kind: type[Worker], tmp_path: Path) -> None:
    torch.set_num_threads(1)
    instants = random.Random(11)
    with StoreServer(tmp_path / "store") as server:
        worker = kind(server)
        worker.start()
        for _ in range(KILLS):
            wait_for_rounds(worker, worker.rounds + 2)
            time.sleep(instants.random() * 0.3)
            server.kill()
            server.start()
        wait_for_rounds(worker, worker.rounds + 2)
        worker.stop.set()
        worker.join(300)
        assert not worker.is_alive() and worker.error is None


def wait_for_rounds(worker: Worker, rounds: int) -> None:
    while worker.rounds < rounds and worker.error is None:
        time.sleep(0.02)
    if worker.error is not None:
        raise worker.error
