"""Sessions of one process, attempt by attempt, over a store in a folder: for training loops of other libraries."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from tests.support.fakes.folder_store import FolderObjectStore
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers import Session
from trainhouse.workers.session import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver


class FollowedRuns:
    """One job. `attempt()` begins its next attempt, and ends the one before. `in_processes`: uploads have a process, as in a rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FolderObjectStore(folder / "store")
        self.epoch = 0
        self.in_processes = False
        self._sessions: list[Session] = []

    def attempt(self) -> Session:
        self.close()
        context = Context(
            job_id="j",
            epoch=self.epoch,
            spool=self.spool(self.epoch),
            request=self.folder / "request.json",
            policy=CheckpointPolicy(min_interval_s=1000, max_interval_s=2000),
        )
        helper = UploadHelper(self.store) if self.in_processes else None
        checkpointer = Checkpointer(CheckpointerSettings("j", self.epoch, self.epoch, "spec"), self.store, helper=helper)
        checkpointer.claim()
        session = Session(context, Gang(context), open_sink(context), CommitSaver(checkpointer, RetentionPolicy(50), None))
        self._sessions.append(session)
        self.epoch += 1
        return session

    def spool(self, epoch: int) -> Path:
        return self.folder / f"spool-{epoch}.jsonl"

    def points(self, epoch: int, name: str = "loss") -> list[tuple[int, float]]:
        """Step and value of each point of a metric, in the order in which an attempt logged them."""
        lines = [json.loads(line) for line in self.spool(epoch).read_text().splitlines()]
        return [(line[1], line[3][name]) for line in lines if line[0] == "m" and name in line[3]]

    def saved(self) -> list[int]:
        """Steps of the checkpoints."""
        entries = [read_entry(self.store, "j", n) for n in range(head(self.store, "j") + 1)]
        return [entry.step for entry in entries if isinstance(entry, Manifest)]

    def close(self) -> None:
        while self._sessions:
            self._sessions.pop().close()


def weights_of(model: torch.nn.Module) -> str:
    """Hash of all weights and buffers, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
