"""Where a session's checkpoints go: the job's commit chain in the object store, or nowhere when the script runs on its own.

Holds: all ranks call `restore` and `save` at the same steps. A newer attempt ends this one: StaleEpoch passes through. A store that is
away for long costs a save, not the training: the older checkpoints stand, and the next due one is tried again.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from trainhouse.checkpointing.checkpointer import Checkpointer
from trainhouse.checkpointing.errors import RetryableError
from trainhouse.checkpointing.retention import RetentionPolicy
from trainhouse.checkpointing.s3 import S3ObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.gang import Gang
from trainhouse.workers.session.sink import Sink
from trainhouse.workers.session.tracked import Tracked


class Saver(Protocol):
    """The port."""

    @property
    def saves(self) -> bool:
        """False: `save` does nothing."""

    def restore(self, tracked: Tracked) -> int:
        """Put back the newest healthy checkpoint into `tracked`; the number of steps that it has behind it, 0 for none. Blocks."""

    def save(self, tracked: Tracked, step: int) -> bool:
        """Commit a checkpoint of `step` finished steps; whether it exists now. Blocks."""


class Unsaved:
    """Outside of Trainhouse: every run begins at step 0."""

    saves = False

    def restore(self, tracked: Tracked) -> int:
        """Nothing to restore."""
        return 0

    def save(self, tracked: Tracked, step: int) -> bool:
        """Nothing is saved."""
        return False


class CommitSaver:
    """Saves to the job's chain."""

    saves = True

    def __init__(self, checkpointer: Checkpointer, keep_last: int, resume_from: str | None) -> None:
        self._checkpointer = checkpointer
        self._retention = RetentionPolicy(keep_last=keep_last)
        self._resume_from = resume_from

    def restore(self, tracked: Tracked) -> int:
        """From the job's own chain, else from `resume_from`."""
        return self._checkpointer.restore(tracked.shared(), tracked.put_back_own, self._resume_from).step

    def save(self, tracked: Tracked, step: int) -> bool:
        """Commit, then remove what retention gives up."""
        try:
            self._checkpointer.save(tracked.shared(), tracked.of_this_rank(), step, time.time())
        except RetryableError as error:
            print(f"the checkpoint of step {step} was not saved, training goes on: {error}", file=sys.stderr, flush=True)
            return False
        try:
            self._checkpointer.prune(self._retention)
        except RetryableError as error:
            print(f"older checkpoints were not removed, the next save tries again: {error}", file=sys.stderr, flush=True)
        return True


def open_saver(context: Context, gang: Gang, sink: Sink) -> Saver:
    """The saver of this rank's job; claims the commit chain for its epoch. Blocks. Raises CheckpointError."""
    if context.job_id is None:
        return Unsaved()

    def on_event(name: str, fields: Mapping[str, Any]) -> None:
        told = {k: v for k, v in fields.items() if k != "job_id"}
        event_id = told.pop("event_id", None)
        sink.event(name, told, event_id)

    checkpointer = Checkpointer(
        S3ObjectStore(StoreSettings()),
        context.job_id,
        context.epoch,
        context.attempt,
        context.spec_sha256,
        gang.control,
        on_event=on_event,
        seed=context.seed,
    )
    checkpointer.claim()
    return CommitSaver(checkpointer, context.policy.keep_last, context.resume_from)
