"""Plans of files in the format of `torch.save`: a pickle with references to storages, and the storages beside it in one zip archive."""

import io
import pickle  # nosec B403  # writes only; what it writes is loaded with weights_only
import sys
from collections import OrderedDict
from typing import Any

import torch

from trainhouse.checkpointing.chain.manifest import Piece
from trainhouse.checkpointing.exchange.contents import StoredTensor
from trainhouse.checkpointing.exchange.file_plan import FilePlan
from trainhouse.checkpointing.exchange.zip_archive import ALIGNMENT, ZipArchive


def append_value(plan: FilePlan, value: Any) -> None:
    """Appends nested values with `StoredTensor`s; `torch.load` reads them as tensors."""
    pickled, tensors = _pickled(value)
    archive = _begin(plan, pickled)
    for key, tensor in enumerate(tensors):
        archive.add_later(f"data/{key}", tensor.size_bytes)
        plan.append_tensor(tensor.name, tensor.record, tensor.item_bytes)
    _end(archive)


def append_piece(plan: FilePlan, tensor: StoredTensor, piece: Piece) -> None:
    """Appends one piece of a tensor as a tensor."""
    alone = StoredTensor(tensor.name, tensor.record.model_copy(update={"shape": piece.sizes, "pieces": (piece,)}))
    pickled, _ = _pickled(alone)
    archive = _begin(plan, pickled)
    archive.add_later("data/0", alone.size_bytes)
    plan.append_piece(tensor.name, piece, tensor.item_bytes)
    _end(archive)


def _begin(plan: FilePlan, pickled: bytes) -> ZipArchive:
    archive = ZipArchive(plan, "archive")
    archive.add("data.pkl", pickled)
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(ALIGNMENT).encode())
    archive.add("byteorder", sys.byteorder.encode())
    return archive


def _end(archive: ZipArchive) -> None:
    archive.add("version", b"3\n")
    archive.close()


def _pickled(value: Any) -> tuple[bytes, list[StoredTensor]]:
    written = io.BytesIO()
    pickler = _Pickler(written)
    pickler.dump(value)
    return written.getvalue(), pickler.tensors


class _Storage:
    """The storage of a tensor, for the pickler."""

    def __init__(self, tensor: StoredTensor) -> None:
        self.tensor = tensor


class _Pickler(pickle.Pickler):
    """Pickles `StoredTensor`s as torch pickles tensors; `tensors` has them by the number of their storage."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self.tensors: list[StoredTensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        self.tensors.append(obj.tensor)
        return ("storage", torch.UntypedStorage, str(len(self.tensors) - 1), "cpu", obj.tensor.size_bytes)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, StoredTensor):
            return NotImplemented
        shape = obj.record.shape
        strides, stride = [], 1
        for size in reversed(shape):
            strides.append(stride)
            stride *= max(1, size)
        hooks: OrderedDict[str, Any] = OrderedDict()
        return (torch._utils._rebuild_tensor_v3, (_Storage(obj), 0, shape, tuple(reversed(strides)), False, hooks, obj.dtype))
