"""A save in three parts: `stage` copies into host memory while training waits, `send` uploads a rank's share, `commit` makes it one.

Holds: the manifest is written last, by rank 0, with every rank's receipt that its chunks are in the store; a save that took so long
that retention could have swept a chunk it relies on is not committed.
Never: writes to local disk.
"""

import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import SavePlan

from trainhouse.checkpointing.chain.chunks import ChunkStore, Sent
from trainhouse.checkpointing.chain.commits import CommitChain, Writer
from trainhouse.checkpointing.chain.manifest import Chunk, Held, Manifest, Piece, Span, TensorRecord
from trainhouse.checkpointing.chain.pace import Pace
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import CheckpointError, InvalidStateError, SaveFailedError
from trainhouse.checkpointing.staging.body_layout import LocalSpan
from trainhouse.checkpointing.staging.copier import Copier
from trainhouse.checkpointing.staging.writer import Places, PlannedTensor, Share, StagingMemory, StagingWriter
from trainhouse.checkpointing.state.agreement import RankState, Union, rank_state, union
from trainhouse.checkpointing.state.part import unsynced_names
from trainhouse.checkpointing.state.planners import BalancedSavePlanner, Layouts, layouts_of
from trainhouse.checkpointing.state.state_tree import TakenApart, pack, take_apart, values_of
from trainhouse.checkpointing.uploading.uploader import Bodies, InProcessUploader, Uploader

MAX_BROADCASTS = 64
"""States that are sent one after the other; more go in one step, whose bytes grow with the ranks instead."""
MAX_WARNED = 100
"""Keys of which a rank is warned: those of a large model may all have numbers that differ."""


@dataclass(frozen=True)
class About:
    """Description of a checkpoint: step, spec, time, metrics, and the manifest's `data_shares`."""

    step: int
    spec_hash: str
    created_at_s: float
    metrics: dict[str, float]
    data_shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class Staged:
    """A checkpoint in host memory: this rank's share, where its own state is in it, and on rank 0 the plan of all.

    `sent`: chunks of earlier waves, which are in the store. `number`: of the saves of this attempt. `began_s`, `upload_began_s`: when
    staging and the first upload began, as time.perf_counter has it. `pace`: of the upload that is still to come.
    """

    share: Share
    plan: dict[str, PlannedTensor]
    own_spans: tuple[LocalSpan, ...]
    structure_span: LocalSpan
    sent: tuple[Sent, ...]
    number: int
    stage_s: float
    began_s: float
    upload_began_s: float
    pace: Pace


@dataclass(frozen=True)
class Receipt:
    """Receipt of one rank, sent when its chunks are in the store."""

    sent: list[Sent]
    own_spans: tuple[LocalSpan, ...]
    structure_span: LocalSpan


@dataclass(frozen=True)
class _KeptPlan:
    """Plan of a save, for those after it: torch's planning of a large model takes longer than the copy.

    `local`: what this rank writes. `plan`: where all of it is, on rank 0.
    """

    layouts: Layouts
    unsynced: frozenset[str]
    local: SavePlan
    plan: dict[str, PlannedTensor]


class Saver:
    """Saves for one writer. `stage` is collective; `send` and `commit` are of one rank, and may be called from another thread."""

    def __init__(
        self,
        ranks: Ranks,
        chunks: ChunkStore,
        chain: CommitChain,
        writer: Writer,
        longest_upload_s: float,
        uploader: Uploader | None = None,
        memory: StagingMemory | None = None,
        *,
        full_pace: bool = False,
    ) -> None:
        """`full_pace`: uploads go before training."""
        self._ranks = ranks
        self._chain = chain
        self._writer = writer
        self._longest_upload_s = longest_upload_s
        self._full_pace = full_pace
        self._uploader = uploader or InProcessUploader(chunks)
        self._memory = memory or StagingMemory(self._uploader.arena, Copier(), None, warnings.warn)
        self._compared = False
        self._kept: _KeptPlan | None = None
        self._layouts: Layouts = ()
        self._warned: set[str] = set()
        self._saves = 0

    def stage(self, state: Mapping[str, Any], own: Sequence[Mapping[str, Any]], named: frozenset[str]) -> Staged:
        """Copies this rank's share of `state`, and its own state. Collective. Raises InvalidStateError, or as `send`.

        `own`: this rank's own state; of who is Alone, that of each rank of a gang whose others are gone.
        """
        began = time.perf_counter()
        self._saves += 1
        apart, packed, agreed = self._agreed(state, own)
        sent: list[Sent] = []
        if self._ranks.rank == 0:
            packed = [*packed, agreed.skeleton]
        uploads_s: list[float] = []

        def upload(places: Places) -> None:
            uploads_s.append(time.perf_counter())
            sent.extend(self._uploader.send(Bodies(places, self._saves, Pace(full=True)), named))  # training waits for it

        writer = StagingWriter(self._ranks.rank, self._memory, packed, upload)
        self._plan_and_copy(apart, agreed.unsynced, writer)
        assert writer.share is not None
        own_spans = writer.share.own_spans[: len(own)]
        ended = time.perf_counter()
        upload_began_s = uploads_s[0] if uploads_s else ended
        structure_span, stage_s = writer.share.own_spans[-1], ended - began
        pace = Pace(full=self._full_pace)
        return Staged(writer.share, writer.plan, own_spans, structure_span, tuple(sent), self._saves, stage_s, began, upload_began_s, pace)

    def send(self, staged: Staged, named: frozenset[str]) -> Receipt:
        """Sends what is not in the store. `named`: hashes that a live manifest of this job names. Blocks.

        Raises ObjectStoreUnavailableError, SaveFailedError.
        """
        staged.share.copied()
        sent = self._uploader.send(Bodies(staged.share.places, staged.number, staged.pace), named)
        return Receipt([*staged.sent, *sent], staged.own_spans, staged.structure_span)

    def commit(self, staged: Staged, about: About, receipts: Sequence[Receipt], parent: int | None) -> tuple[Manifest, list[Manifest]]:
        """Appends the checkpoint to the chain; returns its manifest, and earlier ones of ours that had landed. For rank 0. Blocks.

        Raises StaleEpochError, ObjectStoreUnavailableError, SaveFailedError.
        """
        now = time.perf_counter()
        upload_s, since_s = now - staged.upload_began_s, now - staged.began_s  # another rank's first wave may have been earlier
        if since_s > self._longest_upload_s:
            raise SaveFailedError(f"step {about.step}: the save took {since_s:.0f} s, more than half of retention's grace: not committed")
        return self._chain.append(lambda n: self._manifest(n, staged, about, receipts, parent, upload_s))

    def _agreed(self, state: Mapping[str, Any], own: Sequence[Mapping[str, Any]]) -> tuple[TakenApart, list[bytes], Union]:
        """This rank's tensors and packed own states, and the union of all ranks' states.

        Of those that are alike one is exchanged, and only hashes where all are. Values are compared by the first save.
        """
        prepared: list[tuple[TakenApart, list[bytes], RankState]] = []
        layout: Layouts = ()

        def prepare() -> tuple[bytes, bool]:
            nonlocal layout
            apart = take_apart(values_of(state))
            mine = rank_state(apart, unsynced_names(state), sampled=not self._compared)
            prepared.append((apart, [pack(dict(o), "per_rank_state") for o in own], mine))
            layout = layouts_of(apart.tensors)
            return mine.digest(), self._kept is not None and layout == self._kept.layouts

        digests, kept = zip(*self._ranks.all(prepare), strict=True)
        apart, packed, mine = prepared[0]
        if len(set(digests)) == 1:
            agreed = Union(mine.skeleton, mine.unsynced)
        else:
            states = self._different(digests, mine)
            agreed = self._ranks.each(lambda: union(states))
            self._warn(agreed.unlike)
        self._compared = True
        if not all(kept) or (self._kept is not None and self._kept.unsynced != agreed.unsynced):
            self._kept = None
        self._layouts = layout
        return apart, packed, agreed

    def _different(self, digests: Sequence[bytes], mine: RankState) -> dict[int, RankState]:
        """By the first rank that has it, each different state. Collective."""
        first = sorted({digest: rank for rank, digest in reversed(list(enumerate(digests)))}.values())
        if len(first) <= MAX_BROADCASTS:
            return self._ranks.some(first, lambda: mine)
        states = self._ranks.all(lambda: mine if self._ranks.rank in first else None)
        return {rank: state for rank, state in enumerate(states) if state is not None}

    def _warn(self, unlike: Mapping[str, str]) -> None:
        """Warns once about each key, on rank 0 alone: all ranks know the same."""
        for name in [name for name in unlike if name not in self._warned][: MAX_WARNED - len(self._warned)]:
            self._warned.add(name)
            if self._ranks.rank == 0:
                warnings.warn(unlike[name], stacklevel=2)

    def _plan_and_copy(self, apart: TakenApart, unsynced: frozenset[str], writer: StagingWriter) -> None:
        """Copies by a new plan of all ranks, or by that of the save before if no rank has other tensors or layouts since."""
        planner = BalancedSavePlanner(self._ranks.world_size, unsynced)
        kept = self._kept
        if kept is not None:
            writer.plan = kept.plan
            planner.set_up_planner(dict(apart.tensors), is_coordinator=self._ranks.rank == 0)
            self._ranks.each(lambda: writer.write_data(kept.local, planner))
            return
        self._plan_anew(apart, planner, writer)
        assert writer.local is not None
        self._kept = _KeptPlan(self._layouts, unsynced, writer.local, writer.plan)

    def _plan_anew(self, apart: TakenApart, planner: BalancedSavePlanner, writer: StagingWriter) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                state_dict_saver.save(
                    dict(apart.tensors),
                    storage_writer=writer,
                    planner=planner,
                    process_group=self._ranks.group,
                    no_dist=self._ranks.alone,
                )
        except CheckpointException as error:
            raise _first_failure(error) from error

    def _manifest(
        self, commit: int, staged: Staged, about: About, receipts: Sequence[Receipt], parent: int | None, upload_s: float
    ) -> Manifest:
        base: list[int] = []
        chunks: list[Chunk] = []
        for receipt in receipts:
            base.append(len(chunks))
            chunks.extend(s.chunk for s in receipt.sent)

        def span(local: LocalSpan) -> Span:
            return Span(chunk=base[local.rank] + local.body, offset=local.offset, size_bytes=local.size_bytes)

        def record(planned: PlannedTensor) -> TensorRecord:
            pieces = tuple(Piece(offsets=o, sizes=s, span=span(where)) for o, s, where in planned.pieces)
            return TensorRecord(dtype=planned.dtype, shape=planned.shape, pieces=pieces)

        return Manifest(
            job_id=self._writer.job_id,
            commit=commit,
            epoch=self._writer.epoch,
            attempt=self._writer.attempt,
            writer=self._writer.writer,
            created_at_s=about.created_at_s,
            step=about.step,
            world_size=sum(len(r.own_spans) for r in receipts),
            data_shares=about.data_shares,
            spec_hash=about.spec_hash,
            parent=parent,
            structure=span(receipts[0].structure_span),
            ranks=tuple(span(own) for r in receipts for own in r.own_spans),
            tensors={name: record(planned) for name, planned in staged.plan.items()},
            chunks=tuple(chunks),
            bytes_new=sum({s.chunk.sha256: s.chunk.size_bytes for r in receipts for s in r.sent if s.new}.values()),
            stage_s=staged.stage_s,
            upload_s=upload_s,
            metrics=about.metrics,
            held=held_by([s.holder for receipt in receipts for s in receipt.sent]),
        )


def held_by(holders: Sequence[str]) -> tuple[Held, ...]:
    """Returns the chunks that nodes hold, from the holder of each chunk in order, an empty name for none."""
    found: list[Held] = []
    first = 0
    for node_id, run in itertools.groupby(holders):
        count = len(list(run))
        if node_id:
            found.append(Held(node_id=node_id, first=first, count=count))
        first += count
    return tuple(found)


def _first_failure(error: CheckpointException) -> CheckpointError:
    """Returns the failures that torch gathered from the ranks, as one error of ours."""
    rank, (cause, _) = next(iter(error.failures.items()))
    if isinstance(cause, CheckpointError):
        return cause
    return InvalidStateError(f"rank {rank} could not plan or copy its share: {type(cause).__name__}: {cause}")
