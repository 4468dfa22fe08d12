"""Checkpointer: the session's access to checkpoints (claim, save, restore, prune).

Holds: an attempt claims the chain before it chooses its restore point. A CheckpointCompleted event is told with the same fields
whenever its commit is met again, so a crash between manifest and event loses nothing. Events are told on rank 0 only.
Never: decides when to save; reads a clock but the one given.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist

from trainhouse.checkpointing.chain.chunks import GRACE_S, ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, commit_key
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.restore_candidates import Candidates, resume_from_of
from trainhouse.checkpointing.chain.retention import Pruner, PruneResult, RetentionPolicy
from trainhouse.checkpointing.collective import Alone, Ranks
from trainhouse.checkpointing.errors import CheckpointError, DamagedError
from trainhouse.checkpointing.loader import Loader, PerRankConsumer
from trainhouse.checkpointing.results import DamagedCheckpoint, RestoreReport, SavedCheckpoint
from trainhouse.checkpointing.saver import About, Saver, Staged
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.resume_ref import ResumeFrom

OnEvent = Callable[[str, dict[str, Any]], None]


def _no_event(name: str, fields: dict[str, Any]) -> None:
    """No-op event sink."""


@dataclass(frozen=True, slots=True)
class CheckpointerSettings:
    """Settings of one attempt's checkpointer.

    `seed`: of the generators of ranks that a restore adds. `restore_at_most`: of this job's own checkpoints begin from no newer one; those
    that are newer are passed over for good. `grace_s`: age from which a chunk that no commit names is sent again.
    """

    job_id: str
    epoch: int
    attempt: int
    spec_hash: str
    seed: int = 0
    restore_at_most: int | None = None
    grace_s: float = GRACE_S


class Checkpointer:
    """The checkpoints of one job, as one attempt writes and reads them. Every public method but `prune` is collective and blocks."""

    def __init__(
        self,
        settings: CheckpointerSettings,
        objects: ObjectStore,
        process_group: dist.ProcessGroup | None = None,
        *,
        on_event: OnEvent = _no_event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._objects = objects
        self._writer = Writer(JobId.parse(settings.job_id), Epoch(settings.epoch), AttemptNumber(settings.attempt), uuid.uuid4().hex)
        self._spec_hash = settings.spec_hash
        self._ranks = Ranks(process_group)
        self._on_event = on_event
        self._clock = clock
        self._chunks = ChunkStore(objects, settings.job_id, settings.grace_s)
        self._chain = CommitChain(objects, self._writer)
        self._longest_upload_s = settings.grace_s / 2
        self._saver = Saver(self._ranks, self._chunks, self._chain, self._writer, self._longest_upload_s)
        self._loader = Loader(self._ranks, self._chunks, settings.seed)
        self._pruner = Pruner(objects, self._writer.job_id)
        self._claimed = False
        self._restore_at_most = settings.restore_at_most
        self._newest: Manifest | None = None

    def claim(self) -> None:
        """Fences off older attempts. Raises StaleEpochError if there is a newer one."""
        if not self._claimed:
            self._ranks.first(lambda: self._chain.claim(self._clock(), self._restore_at_most))
            self._claimed = True

    @property
    def newest_commit(self) -> int | None:
        """The newest checkpoint of this job that this attempt restored or saved; alike on all ranks."""
        return None if self._newest is None else self._newest.commit

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
        """Saves `state` (Stateful objects, tensors, nested values) and each rank's own state.

        Ranks may hold different keys, and all are saved. Under one key a tensor is alike on all ranks that have it, or sharded over them;
        numbers that differ are the lowest rank's, with a warning.
        Raises StaleEpochError (this attempt must end), ObjectStoreUnavailableError or SaveFailedError (the older checkpoints stand),
        InvalidStateError.
        """
        self._publish("CheckpointStarted", now, step=step, reason=reason)
        try:
            return self.upload(self.stage(state, per_rank_state), step, now, metrics=metrics)
        except CheckpointError as error:
            self._publish("CheckpointFailed", now, step=step, reason=str(error))
            raise

    def save_for_all(self, state: Mapping[str, Any], own: Sequence[Mapping[str, Any]], step: int, now: float) -> SavedCheckpoint:
        """As `save`, by one rank that holds all of `state`, when others of its gang are gone. `own`: each rank's own state, by rank.

        Not collective. Of several ranks that try, one succeeds. Raises as `save`, and ChainConflictError for the others.
        """
        chain = CommitChain(self._objects, self._writer)
        saver = Saver(Alone(), self._chunks, chain, self._writer, self._longest_upload_s)
        parent = self._newest
        staged = saver.stage_for(state, own)
        chain.take_over()
        about = About(step, self._spec_hash, now, {})
        manifest, _ = saver.upload(staged, about, frozenset(), parent.commit if parent is not None else None)
        return self._completed(manifest, always_publish=True)

    def stage(self, state: Mapping[str, Any], per_rank_state: Mapping[str, Any]) -> Staged:
        """The part of a save for which training waits: a copy in host memory. Raises InvalidStateError."""
        return self._saver.stage(state, per_rank_state)

    def upload(self, staged: Staged, step: int, now: float, *, metrics: Mapping[str, float] | None = None) -> SavedCheckpoint:
        """The part of a save that needs the store, not the training state. Raises as `save`."""
        self.claim()
        about = About(step, self._spec_hash, now, dict(metrics or {}))
        parent = self._newest
        named = frozenset(c.sha256 for c in parent.chunks) if parent is not None else frozenset()
        manifest, landed = self._saver.upload(staged, about, named, parent.commit if parent is not None else None)
        for earlier in landed:
            self._completed(earlier)
        self._newest = manifest
        return self._completed(manifest)

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
        )
        self._restored(manifest, report)
        return report

    def prune(self, policy: RetentionPolicy, keep: frozenset[int] = frozenset()) -> PruneResult:
        """Gives up the checkpoints of this job that neither the policy nor `keep` keeps. Not collective: rank 0 acts, others do nothing."""
        if self._ranks.rank != 0:
            return PruneResult((), 0)
        result = self._pruner.prune(policy, keep)
        if result.commits:
            self._publish("CheckpointPruned", self._clock(), commits=result.commits, bytes_freed=result.bytes_freed)
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
            self._newest = manifest
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
            self._on_event("CheckpointCompleted", fields | _writer_fields(manifest, manifest.created_at_s))
        return saved

    def _publish(self, name: str, at_s: float, **fields: Any) -> None:
        if self._ranks.rank == 0:
            self._on_event(name, fields | _writer_fields(self._writer, at_s))

    def _uri(self, manifest: Manifest) -> str:
        return self._objects.uri(commit_key(manifest.job_id, manifest.commit))


def _writer_fields(writer: Writer | Manifest, at_s: float) -> dict[str, Any]:
    return {"job_id": str(writer.job_id), "attempt": int(writer.attempt), "epoch": int(writer.epoch), "at_ms": int(at_s * 1000)}
