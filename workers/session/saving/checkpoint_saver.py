"""Destination of a session's checkpoints: the job's commit chain in the object store, or none when the script runs on its own.

Holds: all ranks call `restore`, `save` and `settle` at the same steps. A newer attempt ends this one: StaleEpochError passes through. A
store that is away for long, or refuses, costs a save, not the training: the older checkpoints stand, and the next due one is tried again.
Keys that the agent gives no more end the attempt: the next one alone has leave again.
"""

import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, Protocol

import torch

from trainhouse.checkpointing.chain.best_checkpoint import Score
from trainhouse.checkpointing.chain.manifest import LOSS
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings, PendingSave
from trainhouse.checkpointing.errors import CheckpointError, KeysEndedError, ObjectStoreRefusedError, RetryableError
from trainhouse.checkpointing.lease.agent_peers import peers_of
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.results import RestoreReport, SavedCheckpoint
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.share_estimate import share_bytes
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.events.model.spec import CheckpointPolicy, MetricMode
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.peer_state import Elsewhere
from trainhouse.workers.session.saving.tracked_state import Tracked

LATE_STEPS = 5
"""An optimizer that has no moments by then makes none, or later than memory should wait for."""
WORTH_BYTES = 16 * 2**20
COSTS_A_SAVE = (RetryableError, ObjectStoreRefusedError)
"""A refusal passes, too: a key is put right, or a right is given, while training goes on. A restore raises it: it must not begin anew."""


class Saver(Protocol):
    """The port."""

    @property
    def saves(self) -> bool:
        """False: `save` does nothing."""

    def restore(self, tracked: Tracked) -> int:
        """Put back the newest healthy checkpoint into `tracked`; the number of steps that it has behind it, 0 for none. Blocks."""

    def prepare(self, tracked: Tracked, steps: int) -> bool:
        """Begin to make memory for the first save ready, after `steps` steps of this attempt; False: call it after the next one, too."""

    def save(self, tracked: Tracked, step: int, metrics: Mapping[str, float], score: Score | None = None) -> bool:
        """Stage a checkpoint of `step` finished steps, with what was measured there; whether it is on its way. Blocks for that, and for
        the upload of the one before. `score`: what `is_best` found the best, which the tag then names."""

    def is_best(self, score: Score) -> bool:
        """Whether it beats that of the checkpoint tagged as the best. Of rank 0; blocks the first time."""

    @property
    def uploading(self) -> bool:
        """True while this rank does not know how the save under way ended."""

    def settle(self) -> SavedCheckpoint | None:
        """Wait until all ranks know how the save under way ended; None if there is no checkpoint of it. Collective; blocks."""

    @property
    def refusal(self) -> ObjectStoreRefusedError | None:
        """The refusal of the newest save by the store, alike on all ranks; None where it did not, or that is not settled."""

    def close(self, wait_s: float) -> None:
        """Wait so long for the save under way, then give it up. Not collective; blocks."""

    def save_for_all(self, state: dict[str, Any], own: list[dict[str, Any]], step: int) -> bool:
        """Commit what this rank alone has, `own` being each rank's own state; whether it was. Not collective; blocks."""

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Exchange of own states with ranks on other machines; None without one."""

    def proved(self) -> None:
        """Training went on soundly from the newest checkpoint: it is a good one, to be kept until the next is."""

    @property
    def good_commit(self) -> int | None:
        """The newest checkpoint that was proved, else the one that this attempt began from; None for neither."""


class Unsaved:
    """Outside of Trainhouse: every run begins at step 0."""

    saves = False

    def restore(self, tracked: Tracked) -> int:
        """Nothing to restore."""
        return 0

    def prepare(self, tracked: Tracked, steps: int) -> bool:
        """Nothing is saved."""
        return True

    def save(self, tracked: Tracked, step: int, metrics: Mapping[str, float], score: Score | None = None) -> bool:
        """Nothing is saved."""
        return False

    def is_best(self, score: Score) -> bool:
        """Nothing is saved."""
        return False

    @property
    def uploading(self) -> bool:
        """False."""
        return False

    def settle(self) -> SavedCheckpoint | None:
        """Nothing is on its way."""
        return None

    @property
    def refusal(self) -> ObjectStoreRefusedError | None:
        """None."""
        return None

    def close(self, wait_s: float) -> None:
        """Nothing to end."""

    def save_for_all(self, state: dict[str, Any], own: list[dict[str, Any]], step: int) -> bool:
        """Nothing is saved."""
        return False

    @property
    def elsewhere(self) -> Elsewhere | None:
        """None."""
        return None

    def proved(self) -> None:
        """Nothing to prove."""

    @property
    def good_commit(self) -> int | None:
        """None."""
        return None


class CommitSaver:
    """Saves to the job's chain."""

    saves = True

    def __init__(
        self,
        checkpointer: Checkpointer,
        retention: RetentionPolicy,
        resume_from: str | None,
        elsewhere: Elsewhere | None = None,
        tidies: bool = False,
        holders: int = 1,
    ) -> None:
        """`tidies`: this rank removes what earlier attempts left elsewhere. `holders`: ranks that hold the same parts of the model."""
        self._checkpointer = checkpointer
        self._best = checkpointer.best
        self._elsewhere = elsewhere
        self._tidies = tidies
        self._holders = holders
        self._retention = retention
        self._warned = False
        self._pending: PendingSave | None = None
        self._refusal: ObjectStoreRefusedError | None = None
        self._resume_from = resume_from
        self._restored: int | None = None
        self._proved: int | None = None

    def restore(self, tracked: Tracked) -> int:
        """From the job's own chain, else from `resume_from`."""
        self._checkpointer.guard(tracked.optimizers)
        report = self._checkpointer.restore(tracked.shared(), tracked.put_back_own, self._resume_from)
        self._restored = self._checkpointer.newest_commit
        _report_peers(report)
        return report.step

    def prepare(self, tracked: Tracked, steps: int) -> bool:
        """Once optimizers have moments, or do not seem to make any; for states that are worth a thread."""
        if steps < LATE_STEPS and any(not o.state for o in tracked.optimizers if isinstance(o, torch.optim.Optimizer)):
            return False
        size_bytes = share_bytes(tracked.tensors(), self._holders)
        if size_bytes >= WORTH_BYTES:
            self._checkpointer.prepare(size_bytes)
        return True

    def save(self, tracked: Tracked, step: int, metrics: Mapping[str, float], score: Score | None = None) -> bool:
        """Stage; what retention gives up is removed after the commit."""
        self._pending = self._refusal = None
        if score is not None:
            metrics = {**metrics, score.metric: score.value}
        self._best.begin(score)
        try:
            self._pending = self._checkpointer.begin_save(
                tracked.shared(), tracked.of_this_rank(), step, time.time(), metrics=metrics, then=partial(self._tidy_up, score)
            )
        except COSTS_A_SAVE as error:
            self._report_failed(step, error)
        return self._pending is not None

    def is_best(self, score: Score) -> bool:
        """False, and a sentence, while the store does not answer."""
        try:
            return self._best.is_best(score)
        except KeysEndedError:
            raise
        except COSTS_A_SAVE as error:
            print(f"{score.metric} {score.value:g} was not saved as the best: {error}", file=sys.stderr, flush=True)
            return False

    @property
    def uploading(self) -> bool:
        """By this rank's own knowledge."""
        return self._pending is not None and not self._pending.done

    def settle(self) -> SavedCheckpoint | None:
        """Reports a save that failed."""
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        try:
            return pending.result()
        except COSTS_A_SAVE as error:
            self._report_failed(pending.step, error)
            return None

    def close(self, wait_s: float) -> None:
        """Ends the process that uploads, too; reports a save that did not become a checkpoint."""
        self._checkpointer.close(wait_s)
        pending, self._pending = self._pending, None
        if pending is None or pending.settled or not pending.done:
            return
        try:
            pending.known()
        except CheckpointError as error:
            print(f"the checkpoint of step {pending.step} was not saved: {error}", file=sys.stderr, flush=True)

    @property
    def refusal(self) -> ObjectStoreRefusedError | None:
        """Of the newest save."""
        return self._refusal

    def _report_failed(self, step: int, error: CheckpointError) -> None:
        """Reports that it was not saved. Raises KeysEndedError: no later save of this attempt could be."""
        self._best.begin(None)
        if isinstance(error, KeysEndedError):
            raise error
        self._refusal = error if isinstance(error, ObjectStoreRefusedError) else None
        print(f"the checkpoint of step {step} was not saved, training goes on: {error}", file=sys.stderr, flush=True)

    def _tidy_up(self, score: Score | None, saved: SavedCheckpoint) -> None:
        """Tags the best, removes what retention gives up, and what earlier attempts left; on rank 0, beside training."""
        try:
            if score is not None:
                self._best.saved(score, saved.commit)
        except CheckpointError as error:
            print(f"the checkpoint of step {saved.step} is the best one and has no tag: {error}", file=sys.stderr, flush=True)
        try:
            done = self._checkpointer.prune(self._retention, frozenset() if self._proved is None else frozenset({self._proved}))
            if done.unmeasured:
                self._warn_unmeasured()
        except CheckpointError as error:
            print(f"older checkpoints were not removed, the next save tries again: {error}", file=sys.stderr, flush=True)
        if self._tidies and self._elsewhere is not None:
            self._tidy(self._elsewhere)

    def _warn_unmeasured(self) -> None:
        """Once an attempt: the program may log it later."""
        if self._warned:
            return
        self._warned = True
        name, keep_last = self._retention.metric, self._retention.keep_last
        print(
            f"trainhouse: checkpoint.keep_best: no checkpoint has the metric {name!r} yet, so the newest {keep_last} are kept; "
            f"log it by session.log before a save, or name another in checkpoint.metric",
            file=sys.stderr,
            flush=True,
        )

    def _tidy(self, elsewhere: Elsewhere) -> None:
        """Removes older remains; a failure costs a little space, not the training: ranks may have no right to remove anything."""
        self._tidies = False
        try:
            elsewhere.forget_older()
        except CheckpointError as error:
            self._tidies = isinstance(error, RetryableError)
            print(f"what earlier attempts left for a rescue was not removed: {error}", file=sys.stderr, flush=True)

    def save_for_all(self, state: dict[str, Any], own: list[dict[str, Any]], step: int) -> bool:
        """Of a gang that is broken: what goes wrong is told, and costs no more than the steps since the newest checkpoint."""
        try:
            self._checkpointer.save_for_all(state, own, step, time.time())
        except CheckpointError as error:
            print(f"step {step} was not saved by the ranks that are left: {error}", file=sys.stderr, flush=True)
            return False
        return True

    @property
    def elsewhere(self) -> Elsewhere | None:
        """In the job's own store."""
        return self._elsewhere

    def proved(self) -> None:
        """So retention keeps it, even where it keeps but the last one: that one may turn out to hold a state that has diverged."""
        self._proved = self._checkpointer.newest_commit

    @property
    def good_commit(self) -> int | None:
        """Alike on all ranks."""
        return self._restored if self._proved is None else self._proved


def _report_peers(report: RestoreReport) -> None:
    """Reports what this rank read from other nodes' memory, where there was any to read."""
    for node_id, size_bytes in report.peer_bytes.items():
        print(f"trainhouse: {size_bytes / 2**20:.1f} MiB of the checkpoint came from the memory of {node_id}", file=sys.stderr, flush=True)
    for why in report.peer_failures:
        print(f"trainhouse: the store gave what another node's memory did not: {why}", file=sys.stderr, flush=True)


def start_helper(context: Context) -> UploadHelper | None:
    """Starts the process that uploads this rank's checkpoints; None where nothing is saved, or no process can be started.

    The earlier it is called the better: before there is a thread, a process group or a device.
    """
    if context.job_id is None:
        return None
    try:
        return UploadHelper(StoreSettings())
    except OSError as error:
        how = "uploads them, and copies nothing into other nodes' memory" if context.policy.peer_memory else "uploads them"
        print(f"no process to upload checkpoints could be started, training's own {how}: {error}", file=sys.stderr, flush=True)
        return None


def open_saver(context: Context, gang: Gang, sink: Sink, helper: UploadHelper | None = None) -> Saver:
    """The saver of this rank's job; claims the commit chain for its epoch. Blocks. Raises CheckpointError."""
    if context.job_id is None:
        return Unsaved()

    def on_event(name: str, fields: Mapping[str, Any]) -> None:
        payload = {k: v for k, v in fields.items() if k != "job_id"}
        event_id = payload.pop("event_id", None)
        sink.event(name, payload, event_id)

    store = StoreSettings()
    objects = open_store(store)
    peers = peers_of(store) if context.policy.peer_memory else None
    gib = context.policy.host_memory_gib
    settings = CheckpointerSettings(
        job_id=context.job_id,
        epoch=context.epoch,
        attempt=context.attempt,
        spec_hash=context.spec_sha256,
        seed=context.seed,
        restore_at_most=context.restore_at_most,
        host_memory_bytes=None if gib is None else int(gib * 2**30),
        data_shares=context.layout.data_shares,
        pace=context.policy.pace,
    )
    checkpointer = Checkpointer(settings, objects, gang.control, helper=helper, peers=peers, on_event=on_event)
    checkpointer.claim()
    elsewhere = Elsewhere(objects, context.job_id, context.epoch)
    tidies = context.rank == 0 and context.world_size > 1
    holders = context.world_size // context.layout.pp
    return CommitSaver(checkpointer, retention_of(context.policy), context.resume_from, elsewhere, tidies, holders)


def retention_of(policy: CheckpointPolicy) -> RetentionPolicy:
    """Returns the retention that a spec asks for."""
    return RetentionPolicy(policy.keep_last, policy.keep_best or 0, policy.metric or LOSS, direction_of(policy))


def direction_of(policy: CheckpointPolicy) -> Literal["min", "max"]:
    """Returns which values of the spec's metric are the better ones."""
    return "max" if policy.mode is MetricMode.MAX else "min"
