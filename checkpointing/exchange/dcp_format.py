"""Plans of a folder of `torch.distributed.checkpoint`: each piece a tensor of its own, other values pickled, `.metadata` over all."""

import io
import pickle  # nosec B403  # writes torch's own classes; nothing is loaded here
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from trainhouse.checkpointing.exchange import torch_format
from trainhouse.checkpointing.exchange.contents import Flat, StoredTensor
from trainhouse.checkpointing.exchange.file_plan import FilePlan

METADATA = ".metadata"


def plans(flat: Flat, shard_bytes: int) -> list[FilePlan]:
    """The files, `.metadata` last: without it a folder is no checkpoint."""
    layout = _Layout(shard_bytes)
    described: dict[str, Any] = {}
    for name, value in flat.values.items():
        described[name] = layout.add_tensor(name, value) if isinstance(value, StoredTensor) else layout.add_value(name, value)
    metadata = FilePlan(METADATA)
    metadata.append(
        pickle.dumps(
            Metadata(
                state_dict_metadata=described,
                planner_data=dict(flat.paths),
                storage_data=layout.stored,
                storage_meta=StorageMeta(),
                version=CURRENT_DCP_VERSION,
            )
        )
    )
    return [*layout.files, metadata]


class _Layout:
    """Files of at most `shard_bytes`, but for single pieces that are larger."""

    def __init__(self, shard_bytes: int) -> None:
        self._shard_bytes = shard_bytes
        self.files = [FilePlan("__0_0.distcp")]
        self.stored: dict[MetadataIndex, _StorageInfo] = {}

    def add_tensor(self, name: str, tensor: StoredTensor) -> TensorStorageMetadata:
        boxes = []
        for piece in tensor.record.pieces:
            file = self._file(piece.span.size_bytes)
            start = file.size_bytes
            torch_format.append_piece(file, tensor, piece)
            offsets = torch.Size(piece.offsets)
            boxes.append(ChunkStorageMetadata(offsets, torch.Size(piece.sizes)))
            self.stored[MetadataIndex(name, offsets)] = _StorageInfo(file.name, start, file.size_bytes - start)
        return TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), torch.Size(tensor.record.shape), boxes)

    def add_value(self, name: str, value: Any) -> BytesStorageMetadata:
        written = io.BytesIO()
        torch.save(value, written)
        file = self._file(len(written.getvalue()))
        start = file.append(written.getvalue())
        self.stored[MetadataIndex(name)] = _StorageInfo(file.name, start, file.size_bytes - start)
        return BytesStorageMetadata()

    def _file(self, more_bytes: int) -> FilePlan:
        if self.files[-1].size_bytes and self.files[-1].size_bytes + more_bytes > self._shard_bytes:
            self.files.append(FilePlan(f"__0_{len(self.files)}.distcp"))
        return self.files[-1]
