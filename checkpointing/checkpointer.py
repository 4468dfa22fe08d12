"""Checkpointer: the session's access to checkpoints (claim, save, restore, prune).

Holds: an attempt claims the chain before it chooses its restore point. A CheckpointCompleted event is told with the same fields
whenever its commit is met again, so a crash between manifest and event loses nothing. Events are told on rank 0 only.
Never: decides when to save; reads a clock but the one given.
"""

import time
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist

from trainhouse.checkpointing.chain.best_checkpoint import BestCheckpoint
from trainhouse.checkpointing.chain.chunks import GRACE_S, ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, commit_key
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.pace import Pace
from trainhouse.checkpointing.chain.restore_candidates import Candidates, resume_from_of
from trainhouse.checkpointing.chain.retention import Pruner, PruneResult, RetentionPolicy
from trainhouse.checkpointing.collective import Alone, Ranks
from trainhouse.checkpointing.errors import CheckpointError, DamagedError, StaleEpochError
from trainhouse.checkpointing.loader import Loader, PerRankConsumer
from trainhouse.checkpointing.peer_memory.peers import Peers
from trainhouse.checkpointing.results import DamagedCheckpoint, RestoreReport, SavedCheckpoint
from trainhouse.checkpointing.save_in_flight import Afterwards, SaveInFlight, forget
from trainhouse.checkpointing.saver import About, Receipt, Saver, Staged
from trainhouse.checkpointing.staging.copier import Copier, copier_for
from trainhouse.checkpointing.staging.writer import StagingMemory
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.checkpointing.uploading.upload_helper import HelperUploader, UploadHelper
from trainhouse.checkpointing.uploading.uploader import InProcessUploader, Uploader
from trainhouse.events.model.checkpoint import MOST_METRICS
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.resume_ref import ResumeFrom
from trainhouse.events.model.spec import UploadPace

OnEvent = Callable[[str, dict[str, Any]], None]


def _no_event(name: str, fields: dict[str, Any]) -> None:
    """No-op event sink."""


def _nothing(saved: SavedCheckpoint) -> None:
    """Nothing follows."""


@dataclass(frozen=True, slots=True)
class CheckpointerSettings:
    """Settings of one attempt's checkpointer.

    `seed`: of the generators of ranks that a restore adds. `restore_at_most`: of this job's own checkpoints begin from no newer one; those
    that are newer are passed over for good. `grace_s`: age from which a chunk that no commit names is sent again.
    `host_memory_bytes`: the most that a rank stages at once; a larger state goes in waves, for which training waits. None: no limit.
    `data_shares`: by rank, the share of the data that it reads; empty: each its own, in order. `pace`: of uploads while training runs.
    """

    job_id: str
    epoch: int
    attempt: int
    spec_hash: str
    seed: int = 0
    restore_at_most: int | None = None
    grace_s: float = GRACE_S
    host_memory_bytes: int | None = None
    data_shares: tuple[int, ...] = ()
    pace: UploadPace = UploadPace.BACKGROUND


class PendingSave:
    """A save that is staged: training may go on. One that is waited for goes at full pace from then on."""

    def __init__(
        self,
        save: SaveInFlight[Receipt, SavedCheckpoint],
        step: int,
        stage_s: float,
        on_saved: Callable[[SavedCheckpoint], None],
        pace: Pace,
    ) -> None:
        self.step = step
        self.stage_s = stage_s
        self.settled = False
        self._save = save
        self._on_saved = on_saved
        self._pace = pace

    @property
    def done(self) -> bool:
        """Whether this rank knows how it ended; others may not know it yet."""
        return self._save.done

    def result(self) -> SavedCheckpoint:
        """Waits for the commit. Collective, the first time. Raises as `Checkpointer.save`."""
        if self.settled:
            return self.known()
        self._hurry()
        try:
            saved = self._save.result()
        except CheckpointError:
            self.settled = True
            raise
        self.settled = True
        self._on_saved(saved)
        return saved

    def wait(self, timeout_s: float) -> bool:
        """Waits so long until this rank knows how it ended; returns whether it does. Not collective."""
        if timeout_s > 0:
            self._hurry()
        return self._save.wait(timeout_s)

    def finish(self, timeout_s: float | None = None) -> None:
        """Waits for what follows the commit, on rank 0; so long at most, if there is a limit."""
        self._save.finish(timeout_s)

    def known(self) -> SavedCheckpoint:
        """Waits until this rank knows how it ended: its result, or the error. Not collective."""
        self._hurry()
        return self._save.known()

    def abandon(self) -> bool:
        """Gives it up; returns whether it ended without a commit. Not collective."""
        return self._save.abandon()

    def _hurry(self) -> None:
        if not self._save.done:
            self._pace.hurry()


class Checkpointer:
    """The checkpoints of one job, as one attempt writes and reads them.

    Public methods are collective and block, `prune`, `guard`, `prepare`, `save_for_all` and `close` aside. With a `helper` uploads are in
    its process, else in a thread of this one. With `peers` and a helper, chunks are in other nodes' memory, too, and are read from there
    first.
    """

    def __init__(
        self,
        settings: CheckpointerSettings,
        objects: ObjectStore,
        process_group: dist.ProcessGroup | None = None,
        *,
        helper: UploadHelper | None = None,
        peers: Peers | None = None,
        on_event: OnEvent = _no_event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._objects = objects
        self._writer = Writer(JobId.parse(settings.job_id), Epoch(settings.epoch), AttemptNumber(settings.attempt), uuid.uuid4().hex)
        self._spec_hash = settings.spec_hash
        self._data_shares = settings.data_shares
        self._ranks = Ranks(process_group)
        self._on_event = on_event
        self._clock = clock
        self._chunks = ChunkStore(objects, settings.job_id, settings.grace_s)
        self._chain = CommitChain(objects, self._writer)
        self._longest_upload_s = settings.grace_s / 2
        self._uploader: Uploader = InProcessUploader(self._chunks)
        if helper is not None:
            self._uploader = HelperUploader(helper, self._chunks, settings.job_id, settings.grace_s, peers, self._ranks.rank)
        self._memory = StagingMemory(self._uploader.arena, Copier(), settings.host_memory_bytes, self._warn_once)
        self._saver = Saver(
            self._ranks,
            self._chunks,
            self._chain,
            self._writer,
            self._longest_upload_s,
            self._uploader,
            self._memory,
            full_pace=settings.pace is UploadPace.FULL,
        )
        self._loader = Loader(self._ranks, self._chunks, settings.seed, settings.data_shares, peers)
        self._pruner = Pruner(objects, self._writer.job_id)
        self.best = BestCheckpoint(objects, self._writer.job_id)
        self._claimed = False
        self._restore_at_most = settings.restore_at_most
        self._newest: int | None = None
        self._named: frozenset[str] = frozenset()
        self._pending: PendingSave | None = None
        self._name = ""
        self._saves = 0
        self._warned = False

    def claim(self) -> None:
        """Fences off older attempts. Raises StaleEpochError if there is a newer one."""
        if not self._claimed:
            self._name = self._ranks.first(self._claim)
            self._claimed = True

    def _claim(self) -> str:
        """Claims the chain, on rank 0; returns a name for this attempt's saves among the ranks."""
        self._chain.claim(self._clock(), self._restore_at_most)
        return f"checkpoints/{self._writer.writer}"

    def _warn_once(self, sentence: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(sentence, stacklevel=2)

    @property
    def newest_commit(self) -> int | None:
        """The newest checkpoint of this job that this attempt restored or saved; alike on all ranks."""
        return self._newest

    def save(
        self,
        state: Mapping[str, Any],
        per_rank_state: Mapping[str, Any],
        step: int,
        now: float,
        *,
        reason: str = "",
        metrics: Mapping[str, float] | None = None,
    ) -> SavedCheckpoint:
        """As `begin_save`, and waits for its result."""
        return self.begin_save(state, per_rank_state, step, now, reason=reason, metrics=metrics).result()

    def begin_save(
        self,
        state: Mapping[str, Any],
        per_rank_state: Mapping[str, Any],
        step: int,
        now: float,
        *,
        reason: str = "",
        metrics: Mapping[str, float] | None = None,
        then: Callable[[SavedCheckpoint], None] = _nothing,
    ) -> "PendingSave":
        """Saves `state` (Stateful objects, tensors, nested values) and each rank's own state; returns once they are staged.

        Everything may be changed then; the checkpoint exists when `result` of what is returned does. One save is under way at a time: the
        next one waits for it. `then` runs after the commit, on rank 0, in another thread.
        Ranks may hold different keys, and all are saved. Under one key a tensor is alike on all ranks that have it, or sharded over them;
        numbers that differ are the lowest rank's, with a warning.
        Raises StaleEpochError (this attempt must end), ObjectStoreUnavailableError or SaveFailedError (the older checkpoints stand),
        InvalidStateError; so does `result`. An error of the save before is raised by its own `result`, and here if the attempt must end.
        """
        self._await_pending()
        self._publish("CheckpointStarted", now, step=step, reason=reason)
        try:
            self.claim()
            staged = self._saver.stage(state, [per_rank_state], self._named)
        except CheckpointError as error:
            self._publish("CheckpointFailed", now, step=step, reason=str(error))
            raise
        self._pending = self._upload(staged, About(step, self._spec_hash, now, dict(metrics or {}), self._data_shares), then)
        return self._pending

    def _await_pending(self) -> None:
        """Waits for the save under way, whose own `result` has its error; one of the fence is raised here too."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            if not pending.settled:
                pending.result()
        except StaleEpochError:
            raise
        except CheckpointError:
            pass
        pending.finish()
        forget(self._ranks, f"{self._name}/{self._saves}")

    def _upload(self, staged: Staged, about: About, then: Callable[[SavedCheckpoint], None]) -> "PendingSave":
        named, parent = self._named, self._newest
        self._saves += 1

        mine: set[str] = set()  # what this rank sends the next time is mostly its own, so it need not know of the others' chunks

        def send() -> Receipt:
            receipt = self._saver.send(staged, named)
            mine.update(s.chunk.sha256 for s in receipt.sent)
            return receipt

        def commit(receipts: list[Receipt]) -> SavedCheckpoint:
            manifest, landed = self._saver.commit(staged, about, receipts, parent)
            for earlier in landed:
                self._completed(earlier)
            return self._completed(manifest)

        def failed(error: CheckpointError) -> None:
            self._publish("CheckpointFailed", about.created_at_s, step=about.step, reason=str(error))

        name = f"{self._name}/{self._saves}"

        def saved(checkpoint: SavedCheckpoint) -> None:
            self._newest, self._named = checkpoint.commit, frozenset(mine)

        save = SaveInFlight(self._ranks, name, send, commit, Afterwards(then, failed))
        return PendingSave(save, about.step, staged.stage_s, saved, staged.pace)

    def save_for_all(self, state: Mapping[str, Any], own: Sequence[Mapping[str, Any]], step: int, now: float) -> SavedCheckpoint:
        """As `save`, by one rank that holds all of `state`, when others of its gang are gone. `own`: each rank's own state, by rank.

        Not collective; gives up the save that is under way. Of several ranks that try, one succeeds. Raises as `save`, and
        ChainConflictError for the others.
        """
        self.close()
        chain = CommitChain(self._objects, self._writer)
        uploader = InProcessUploader(self._chunks)
        saver = Saver(Alone(), self._chunks, chain, self._writer, self._longest_upload_s, uploader, full_pace=True)
        try:
            staged = saver.stage(state, own, frozenset())
            chain.take_over()
            receipt = saver.send(staged, frozenset())
            manifest, _ = saver.commit(staged, About(step, self._spec_hash, now, {}, self._data_shares), [receipt], self._newest)
        finally:
            uploader.close()
        return self._completed(manifest, always_publish=True)

    def guard(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Copies the state on the device of these beside this host's work; what the device is given next waits for it. Call it once."""
        self._memory.copier = copier_for(optimizers)

    def prepare(self, share_bytes: int) -> None:
        """Begins to make host memory for the first save ready, so much at most, beside training; a save takes over what is ready by then.

        Not collective; returns at once. Does nothing after a save, or when it was called before.
        """
        if not self._saves:
            self._memory.prepare(share_bytes)

    def close(self, wait_s: float = 0.0) -> None:
        """Waits so long for the save that is under way, then gives it up unless it is being committed; ends its process. Not collective."""
        pending, self._pending = self._pending, None
        until_s = time.monotonic() + wait_s
        if pending is not None and pending.wait(wait_s):
            pending.finish(max(0.0, until_s - time.monotonic()))
        self._memory.settle()
        self._uploader.close()
        if pending is not None:
            pending.abandon()

    def restore(self, state: dict[str, Any], per_rank_state_consumer: PerRankConsumer, resume_from: str | None = None) -> RestoreReport:
        """Fills `state` from the newest healthy checkpoint of this job, else from `resume_from`; all ranks from the same one.

        Another number of ranks than saved may restore it; generators of ranks that are new then follow from the settings' `seed`.
        `state` stays as it is when there is none. Raises StaleEpochError, NoCheckpointError (of `resume_from`), InvalidStateError (it
        does not fit), ObjectStoreUnavailableError; a store that is away never makes an older checkpoint the choice.
        """
        began = time.perf_counter()
        wanted = self._ranks.each(lambda: resume_from_of(resume_from) if resume_from else None)
        self.claim()
        manifest, damaged = self._choose_and_load(state, per_rank_state_consumer, wanted)
        if manifest is None:
            self._report_nothing_healthy(damaged)
            return RestoreReport(None, 0, str(self._writer.job_id), damaged=damaged, restore_s=time.perf_counter() - began)
        report = RestoreReport(
            restored=manifest.commit,
            step=manifest.step,
            job_id=str(manifest.job_id),
            uri=self._uri(manifest),
            damaged=damaged,
            restore_s=time.perf_counter() - began,
            world_size=manifest.world_size,
            bytes_total=manifest.bytes_total,
            peer_bytes=dict(self._loader.tally.bytes_by_node),
            peer_failures=tuple(self._loader.tally.failures),
        )
        self._restored(manifest, report)
        return report

    def prune(self, policy: RetentionPolicy, keep: frozenset[int] = frozenset()) -> PruneResult:
        """Gives up the checkpoints of this job that neither the policy nor `keep` keeps. Not collective: rank 0 acts, others do nothing."""
        if self._ranks.rank != 0:
            return PruneResult((), 0)
        result = self._pruner.prune(policy, keep)
        for commits, bytes_freed in ((result.earlier, 0), (result.commits, result.bytes_freed)):
            if commits:
                self._publish("CheckpointPruned", self._clock(), commits=commits, bytes_freed=bytes_freed)
        return result

    def _choose_and_load(
        self, state: dict[str, Any], consumer: PerRankConsumer, wanted: ResumeFrom | None
    ) -> tuple[Manifest | None, tuple[DamagedCheckpoint, ...]]:
        candidates = Candidates(self._objects, self._writer.job_id, wanted)
        while True:
            manifest, damaged = self._ranks.first(lambda: (candidates.next(), tuple(candidates.damaged)))
            if manifest is None:
                return None, damaged
            problems = self._loader.load(manifest, state, consumer)
            if not problems:
                return manifest, damaged
            self._reject(candidates, manifest, problems)

    def _reject(self, candidates: Candidates, manifest: Manifest, problems: list[DamagedError]) -> None:
        for problem in problems:
            if problem.sha256 is not None:
                self._chunks.distrust(problem.sha256)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        candidates.reject(manifest, f"{problems[0]}{more}")
        self._pruner.do_not_count(manifest.commit) if manifest.job_id == self._writer.job_id else None

    def _restored(self, manifest: Manifest, report: RestoreReport) -> None:
        if manifest.job_id == self._writer.job_id:
            self._newest, self._named = manifest.commit, frozenset(c.sha256 for c in manifest.chunks)
            self._completed(manifest)
        self._publish(
            "CheckpointRestored",
            self._clock(),
            commit=manifest.commit,
            step=manifest.step,
            uri=report.uri,
            damaged=tuple(str(d) for d in report.damaged),
            restore_s=report.restore_s,
        )

    def _report_nothing_healthy(self, damaged: tuple[DamagedCheckpoint, ...]) -> None:
        if damaged:
            reason = "no checkpoint is healthy, training begins anew: " + "; ".join(str(d) for d in damaged)
            self._publish("CheckpointFailed", self._clock(), step=0, reason=reason)

    def _completed(self, manifest: Manifest, always_publish: bool = False) -> SavedCheckpoint:
        """Publishes a commit from its manifest, so that a repeat is the same event. Published by rank 0, or if `always_publish`."""
        saved = SavedCheckpoint(
            commit=manifest.commit,
            step=manifest.step,
            bytes_new=manifest.bytes_new,
            bytes_total=manifest.bytes_total,
            stage_s=manifest.stage_s,
            upload_s=manifest.upload_s,
            uri=self._uri(manifest),
        )
        if always_publish or self._ranks.rank == 0:
            fields = asdict(saved) | {"event_id": f"{manifest.job_id}:commit:{manifest.commit}", "world_size": manifest.world_size}
            fields["memory_nodes"] = sorted({held.node_id for held in manifest.held})
            if manifest.metrics:
                fields["metrics"] = dict(islice(manifest.metrics.items(), MOST_METRICS))
            self._on_event("CheckpointCompleted", fields | _writer_fields(manifest, manifest.created_at_s))
        return saved

    def _publish(self, name: str, at_s: float, **fields: Any) -> None:
        if self._ranks.rank == 0:
            self._on_event(name, fields | _writer_fields(self._writer, at_s))

    def _uri(self, manifest: Manifest) -> str:
        return self._objects.uri(commit_key(manifest.job_id, manifest.commit))


def _writer_fields(writer: Writer | Manifest, at_s: float) -> dict[str, Any]:
    return {"job_id": str(writer.job_id), "attempt": int(writer.attempt), "epoch": int(writer.epoch), "at_ms": int(at_s * 1000)}
