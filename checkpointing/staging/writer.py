"""The writing end of `torch.distributed.checkpoint`: it copies a rank's share into the arena.

Holds: it touches no network of its own. What does not fit into the memory that it may use goes in waves: all but the last are uploaded
before it returns.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from trainhouse.checkpointing.errors import SaveFailedError
from trainhouse.checkpointing.staging.arena import Arena
from trainhouse.checkpointing.staging.body_layout import Layout, LocalSpan, aligned, lay_out, waves
from trainhouse.checkpointing.staging.copier import Copier
from trainhouse.checkpointing.staging.preparation import Preparation

Places = Sequence[tuple[int, int]]
Upload = Callable[[Places], None]
Note = Callable[[str], None]


@dataclass
class StagingMemory:
    """Memory that a rank stages in. `limit_bytes`: the most that it may have; None: as much as the state takes.

    `note` takes a sentence about a state that goes in waves.
    """

    arena: Arena
    copier: Copier
    limit_bytes: int | None
    note: Note
    _preparation: Preparation | None = None

    def prepare(self, size_bytes: int) -> None:
        """Begins to make so much ready, or what the limit leaves of it, beside training, for a first save. Returns at once."""
        if self._preparation is None and not self.arena.size_bytes:
            limit = size_bytes if self.limit_bytes is None else min(size_bytes, self.limit_bytes)
            with suppress(RuntimeError):  # no more threads: the save does it all
                self._preparation = Preparation(self.arena, self.copier, limit)

    def settle(self) -> None:
        """Ends that. Blocks for one block of memory at most."""
        if self._preparation is not None:
            self._preparation.settle()


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the global plan, with spans by rank."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[tuple[tuple[int, ...], tuple[int, ...], LocalSpan], ...]


@dataclass(frozen=True)
class Share:
    """Staged data of one rank. `places`: of the last wave's bodies in the arena; `copied` blocks until they are there."""

    places: Places
    copied: Callable[[], None]
    own_spans: tuple[LocalSpan, ...]


class StagingWriter(StorageWriter):
    """Stages one save of one rank. `own`: bytes beside the tensors; `upload` takes each wave but the last."""

    def __init__(self, rank: int, memory: StagingMemory, own: Sequence[bytes], upload: Upload) -> None:
        self._rank = rank
        self._memory = memory
        self._own = own
        self._upload = upload
        self.share: Share | None = None
        self.local: SavePlan | None = None
        self.plan: dict[str, PlannedTensor] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: one writer serves one save."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.local = plan
        items = sorted(plan.items, key=lambda i: (i.index.fqn, tuple(i.index.offset or ())))
        sources: list[torch.Tensor | bytes] = []
        for item in items:
            found = planner.resolve_data(item)
            assert isinstance(found, torch.Tensor)
            sources.append(found)
        sources += self._own
        layout = lay_out(self._rank, [s.numel() * s.element_size() if isinstance(s, torch.Tensor) else len(s) for s in sources])
        places, copied = self._copy(sources, layout)
        self.share = Share(places, copied, layout.spans[len(items) :])
        results = [WriteResult(i.index, span.size_bytes, span) for i, span in zip(items, layout.spans, strict=False)]
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        spans: dict[MetadataIndex, LocalSpan] = {r.index: r.storage_data for of_rank in results for r in of_rank}
        for name, tensor in metadata.state_dict_metadata.items():
            assert isinstance(tensor, TensorStorageMetadata)
            pieces = tuple((tuple(c.offsets), tuple(c.sizes), spans[MetadataIndex(name, c.offsets)]) for c in tensor.chunks)
            self.plan[name] = PlannedTensor(str(tensor.properties.dtype).removeprefix("torch."), tuple(tensor.size), pieces)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def storage_meta(self) -> StorageMeta | None:
        return None

    def _copy(self, sources: Sequence[torch.Tensor | bytes], layout: Layout) -> tuple[Places, Callable[[], None]]:
        memory, copier = self._memory.arena, self._memory.copier
        self._memory.settle()
        limit_bytes = self._reserved(layout)
        copier.begin(memory.whole)
        inside: dict[int, list[tuple[LocalSpan, torch.Tensor | bytes]]] = {}
        for span, source in zip(layout.spans, sources, strict=True):
            inside.setdefault(span.body, []).append((span, source))
        places: list[tuple[int, int]] = []
        copied: Callable[[], None] = _nothing
        for number, wave in enumerate(waves(layout.bodies, limit_bytes)):
            if number:
                copied()
                self._upload(places)
            places, at = [], 0
            for body in wave:
                for span, source in inside[body]:
                    _put(copier, memory, at + span.offset, source)
                places.append((at, layout.bodies[body]))
                at += aligned(layout.bodies[body])
            copied = copier.end()
        return places, copied

    def _reserved(self, layout: Layout) -> int:
        """Makes room; returns how much of it a wave may take. Raises SaveFailedError."""
        memory, total, largest = self._memory, layout.total_bytes, layout.largest_bytes
        limit = total if memory.limit_bytes is None else max(largest, min(total, memory.limit_bytes))
        if limit < total:
            memory.note(
                f"this rank's state takes {_mib(total)} and checkpoint.host_memory_gib leaves {_mib(limit)}: "
                "saves go in waves, and training waits for the upload of all but the last"
            )
        while True:
            try:
                memory.arena.reserve(limit)
                return limit
            except OSError as error:
                if limit <= largest:
                    raise SaveFailedError(
                        f"{_mib(limit)} of host memory to stage the state in could not be had ({error.strerror or error}); "
                        "give the job more memory, or checkpoint less"
                    ) from error
                limit = max(largest, limit // 2)
                memory.note(
                    f"{_mib(total)} of host memory to stage the state in could not be had ({error.strerror or error}): "
                    "saves go in waves, and training waits for the upload of all but the last"
                )


def _put(copier: Copier, memory: Arena, offset: int, source: torch.Tensor | bytes) -> None:
    if isinstance(source, torch.Tensor):
        copier.copy(memory.tensor(offset, source.numel() * source.element_size()), source)
    elif source:
        memory.view(offset, len(source))[:] = source


def _nothing() -> None:
    """Nothing to wait for."""


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"
