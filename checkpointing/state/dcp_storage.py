"""The reading end of `torch.distributed.checkpoint`: a reader of verified chunks. The writing end is in `staging`.

Holds: the reader copies into a tensor
only bytes whose chunk has the hash that the manifest names; it holds a bounded number of chunks.
"""

import os
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

from trainhouse.checkpointing.chain.chunks import ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Manifest, Piece, TensorRecord
from trainhouse.checkpointing.errors import DamagedError

READ_THREADS = 4


class VerifyingReader(StorageReader):
    """Reads the tensors of one manifest."""

    def __init__(self, manifest: Manifest, chunks: ChunkStore) -> None:
        self._manifest = manifest
        self._chunks = chunks
        self._pieces: dict[MetadataIndex, Piece] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Nothing: one reader serves one restore."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return metadata_of(self._manifest)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._pieces = dict(metadata.storage_data)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_chunk: dict[int, list[ReadItem]] = {}
        for item in plan.items:
            by_chunk.setdefault(self._pieces[item.storage_index].span.chunk, []).append(item)
        wanted, prefix = list(by_chunk), prefix_of(self._manifest)
        bodies = in_threads(lambda number: self._chunks.fetch(self._manifest.chunks[number], prefix), wanted, READ_THREADS)
        for number, body in zip(wanted, bodies, strict=True):
            for item in by_chunk[number]:
                self._fill(item, body, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def _fill(self, item: ReadItem, body: bytes, planner: LoadPlanner) -> None:
        whole = piece_tensor(self._manifest.tensors[item.storage_index.fqn], self._pieces[item.storage_index], body)
        for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            whole = whole.narrow(dim, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(whole)
        planner.commit_tensor(item, target)


def piece_tensor(record: TensorRecord, piece: Piece, body: bytes) -> torch.Tensor:
    """One piece from its chunk. Raises DamagedError if the manifest's numbers do not fit each other."""
    dtype = dtype_named(record.dtype)
    count = 1
    for size in piece.sizes:
        count *= size
    span = piece.span
    if count * dtype.itemsize != span.size_bytes or span.offset + span.size_bytes > len(body):
        raise DamagedError(f"a piece {piece.sizes} of {record.dtype} cannot be {span.size_bytes} bytes at {span.offset} of {len(body)}")
    if count == 0:
        return torch.empty(piece.sizes, dtype=dtype)
    raw = torch.frombuffer(bytearray(memoryview(body)[span.offset : span.offset + span.size_bytes]), dtype=torch.uint8)
    return raw.view(dtype).reshape(piece.sizes)


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
        boxes = [ChunkStorageMetadata(torch.Size(p.offsets), torch.Size(p.sizes)) for p in record.pieces]
        tensors[name] = TensorStorageMetadata(TensorProperties(dtype=dtype_named(record.dtype)), torch.Size(record.shape), boxes)
        for piece in record.pieces:
            stored[MetadataIndex(name, piece.offsets)] = piece
    return Metadata(state_dict_metadata=dict(tensors), storage_data=stored)
