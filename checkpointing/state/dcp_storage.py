"""The two ends of `torch.distributed.checkpoint`: a writer that stages into host memory, and a reader of verified chunks.

Holds: the writer touches no network: what it stages is uploaded later, while training may go on. The reader copies into a tensor
only bytes whose chunk has the hash that the manifest names; ranks share what they read (`SharedReads`).
"""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from trainhouse.checkpointing.chain.manifest import Manifest, Piece, TensorRecord
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.state.shared_reads import SharedReads
from trainhouse.checkpointing.stores.object_store import Body

PACK_BELOW_BYTES = 256 * 2**10
PACK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class LocalSpan:
    """Bytes within what one rank staged; `body` counts that rank's bodies."""

    rank: int
    body: int
    offset: int
    size_bytes: int


@dataclass
class Share:
    """Staged data of one rank: bodies of chunks, large things alone, small ones packed together."""

    rank: int
    bodies: list[bytes] = field(default_factory=list)
    _pack: bytearray = field(default_factory=bytearray)
    _pack_at: int = -1

    def add(self, content: bytes) -> LocalSpan:
        """Keeps some bytes and says where they are."""
        if len(content) >= PACK_BELOW_BYTES:
            self.bodies.append(content)
            return LocalSpan(self.rank, len(self.bodies) - 1, 0, len(content))
        if self._pack_at < 0:
            self.bodies.append(b"")
            self._pack_at = len(self.bodies) - 1
        span = LocalSpan(self.rank, self._pack_at, len(self._pack), len(content))
        self._pack += content
        if len(self._pack) >= PACK_BYTES:
            self.seal()
        return span

    def seal(self) -> None:
        """Ends the pack under way."""
        if self._pack_at >= 0:
            self.bodies[self._pack_at] = bytes(self._pack)
            self._pack, self._pack_at = bytearray(), -1


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the global plan, with spans by rank."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[tuple[tuple[int, ...], tuple[int, ...], LocalSpan], ...]


class StagingWriter(StorageWriter):
    """Copies this rank's share into host memory; on the coordinator it keeps the global plan."""

    def __init__(self, rank: int) -> None:
        self.staged = Share(rank)
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
        results = []
        for item in sorted(plan.items, key=lambda i: (i.index.fqn, tuple(i.index.offset or ()))):
            found = planner.resolve_data(item)
            assert isinstance(found, torch.Tensor)
            span = self.staged.add(tensor_bytes(found))
            results.append(WriteResult(index=item.index, size_in_bytes=span.size_bytes, storage_data=span))
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
        """Gives each rank's plan the chunks that all ranks need."""
        needs = [sorted({self._pieces[item.storage_index].span.chunk for item in plan.items}) for plan in plans]
        return [dataclasses.replace(plan, storage_data=needs) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_chunk: dict[int, list[ReadItem]] = {}
        for item in plan.items:
            by_chunk.setdefault(self._pieces[item.storage_index].span.chunk, []).append(item)

        def fill(number: int, body: Body) -> None:
            for item in by_chunk[number]:
                self._fill(item, body, planner)

        self.problems = self._reads.fetch(plan.storage_data, fill)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

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
    """One piece from its chunk. Raises DamagedError if the manifest's numbers do not fit each other."""
    check_piece(record, piece, len(body))
    dtype, span = dtype_named(record.dtype), piece.span
    if span.size_bytes == 0:
        return torch.empty(piece.sizes, dtype=dtype)
    raw = torch.frombuffer(bytearray(memoryview(body)[span.offset : span.offset + span.size_bytes]), dtype=torch.uint8)
    return raw.view(dtype).reshape(piece.sizes)


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
