"""The reading end of `torch.distributed.checkpoint`: a reader of verified chunks. The writing end is in `staging`.

Holds: the reader copies into a tensor only bytes whose chunk has the hash that the manifest names; ranks share what they read
(`SharedReads`).
"""

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from trainhouse.checkpointing.chain.manifest import Manifest, Piece, TensorRecord
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.state.shared_reads import SharedReads
from trainhouse.checkpointing.stores.object_store import Body


class VerifyingReader(StorageReader):
    """Reads the tensors of one manifest. `problems`: faults that any rank found; then the tensors must not be used."""

    def __init__(self, manifest: Manifest, reads: SharedReads) -> None:
        self._manifest = manifest
        self._reads = reads
        self._pieces: dict[MetadataIndex, Piece] = {}
        self.problems: list[DamagedError] = []

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: one reader serves one restore."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return metadata_of(self._manifest)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._pieces = dict(metadata.storage_data)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Gives each rank's plan the chunks that all ranks need, and what of each."""
        parts = [self._parts(plan) for plan in plans]
        return [dataclasses.replace(plan, storage_data=parts) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_chunk: dict[int, list[ReadItem]] = {}
        for item in plan.items:
            by_chunk.setdefault(self._pieces[item.storage_index].span.chunk, []).append(item)

        def fill(number: int, body: Body) -> None:
            for item in by_chunk[number]:
                self._fill(item, body, planner)

        self.problems = self._reads.fetch([sorted(of_rank) for of_rank in plan.storage_data], fill, parts=plan.storage_data)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def _parts(self, plan: LoadPlan) -> dict[int, tuple[int, int]]:
        """By chunk, from where to where a plan needs its bytes."""
        parts: dict[int, tuple[int, int]] = {}
        for item in plan.items:
            piece = self._pieces[item.storage_index]
            start, stop = part_of(self._manifest.tensors[item.storage_index.fqn], piece, item.storage_offsets, item.lengths)
            before = parts.get(piece.span.chunk, (start, stop))
            parts[piece.span.chunk] = (min(start, before[0]), max(stop, before[1]))
        return parts

    def _fill(self, item: ReadItem, body: Body, planner: LoadPlanner) -> None:
        whole = piece_tensor(self._manifest.tensors[item.storage_index.fqn], self._pieces[item.storage_index], body)
        for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            whole = whole.narrow(dim, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(whole)
        planner.commit_tensor(item, target)


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """A copy of the values in host memory, row-major."""
    flat = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def piece_tensor(record: TensorRecord, piece: Piece, body: Body) -> torch.Tensor:
    """One piece from its chunk, whose memory it shares if that can be written.

    Raises DamagedError if the manifest's numbers do not fit each other.
    """
    check_piece(record, piece, len(body))
    dtype, span = dtype_named(record.dtype), piece.span
    if span.size_bytes == 0:
        return torch.empty(piece.sizes, dtype=dtype)
    part = memoryview(body)[span.offset : span.offset + span.size_bytes]
    raw = torch.frombuffer(bytearray(part) if part.readonly else part, dtype=torch.uint8)
    # A small tensor within a pack may begin anywhere.
    return (raw.clone() if raw.data_ptr() % dtype.itemsize else raw).view(dtype).reshape(piece.sizes)


def part_of(record: TensorRecord, piece: Piece, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[int, int]:
    """From where to where in its chunk a box within a piece lies, in bytes. Raises DamagedError for an unknown dtype."""
    first, last, stride = 0, 0, dtype_named(record.dtype).itemsize
    for whole, offset, size in reversed(list(zip(piece.sizes, offsets, sizes, strict=True))):
        first, last, stride = first + offset * stride, last + (offset + size - 1) * stride, stride * whole
    if 0 in sizes:
        return piece.span.offset, piece.span.offset
    return piece.span.offset + first, piece.span.offset + last + dtype_named(record.dtype).itemsize


def check_piece(record: TensorRecord, piece: Piece, chunk_bytes: int) -> None:
    """Raises DamagedError if a piece cannot be the bytes that it names of a chunk of so many."""
    span = piece.span
    needed_bytes = math.prod(piece.sizes) * dtype_named(record.dtype).itemsize
    if min(piece.sizes, default=0) < 0 or needed_bytes != span.size_bytes or span.offset + span.size_bytes > chunk_bytes:
        raise DamagedError(f"a piece {piece.sizes} of {record.dtype} cannot be {span.size_bytes} bytes at {span.offset} of {chunk_bytes}")


def dtype_named(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises DamagedError if there is none."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise DamagedError(f"dtype {name!r} is not one of this torch ({torch.__version__})")
    return found


def metadata_of(manifest: Manifest) -> Metadata:
    """The manifest's tensors as torch's planners want them."""
    tensors = {}
    stored = {}
    for name, record in manifest.tensors.items():
        tensors[name] = tensor_metadata_of(record)
        for piece in record.pieces:
            stored[MetadataIndex(name, piece.offsets)] = piece
    return Metadata(state_dict_metadata=dict(tensors), storage_data=stored)


def tensor_metadata_of(record: TensorRecord) -> TensorStorageMetadata:
    """One tensor as torch's planners want it."""
    boxes = [ChunkStorageMetadata(torch.Size(p.offsets), torch.Size(p.sizes)) for p in record.pieces]
    return TensorStorageMetadata(TensorProperties(dtype=dtype_named(record.dtype)), torch.Size(record.shape), boxes)
