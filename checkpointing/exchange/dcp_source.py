"""A folder of `torch.distributed.checkpoint` as the source of an import.

Holds: nothing of the folder runs as code: its metadata may name torch's own descriptions alone, values are loaded as weights_only.
Memory is bounded by the largest tensor, or BATCH_BYTES.
"""

import pickle  # nosec B403  # by an unpickler that knows a few classes alone
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.dcp_format import METADATA
from trainhouse.checkpointing.state.state_tree import some_of, unpack

BATCH_BYTES = 64 * 2**20
_DESCRIPTIONS = "torch.distributed.checkpoint.metadata"
_OTHERS = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}


class DcpSource:
    """One folder. Raises InvalidStateError where it is not what torch writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = _Reader(folder)
        described = self._reader.read_metadata()
        self._described = described.state_dict_metadata
        paths = described.planner_data or {}
        self._paths = {name: paths.get(name, (name,)) for name in self._described}

    def values(self, only: frozenset[str]) -> dict[str, Any]:
        """The nested state, its tensors on no device; of `only` these parts where it names some."""
        wanted = [name for name, path in self._paths.items() if not only or path[0] in only]
        values: dict[str, Any] = {}
        for name in wanted:
            found = self._described[name]
            if isinstance(found, TensorStorageMetadata):
                values[name] = torch.empty(found.size, dtype=found.properties.dtype, device="meta")
        values |= self._load({name: None for name in wanted if name not in values})
        nested: dict[str, Any] = unflatten_state_dict({name: values[name] for name in wanted}, self._paths)
        return nested

    def tensors(self, only: frozenset[str]) -> Iterator[tuple[tuple[str | int, ...], torch.Tensor]]:
        """The tensors with their values, by path."""
        batch: dict[str, Any] = {}
        size = 0
        for name, found in self._described.items():
            if not isinstance(found, TensorStorageMetadata) or (only and self._paths[name][0] not in only):
                continue
            batch[name] = torch.empty(found.size, dtype=found.properties.dtype)
            size += batch[name].nbytes
            if size >= BATCH_BYTES:
                yield from self._loaded(batch)
                batch, size = {}, 0
        yield from self._loaded(batch)

    def _loaded(self, batch: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], torch.Tensor]]:
        for name, tensor in self._load(batch).items():
            yield self._paths[name], tensor

    def _load(self, state: dict[str, Any]) -> dict[str, Any]:
        if not state:
            return state
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                state_dict_loader.load(state, storage_reader=self._reader, planner=_Planner(), no_dist=True)
        except CheckpointException as error:
            cause, _ = next(iter(error.failures.values()))
            raise InvalidStateError(f"{self._folder}: {some_of(sorted(state))} cannot be read ({_first_line(cause)})") from error
        return state


class _Reader(FileSystemReader):
    """Reads the metadata once, with an unpickler that runs nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._known: Metadata | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._known is None:
            try:
                with (self._folder / METADATA).open("rb") as file:
                    found = _Unpickler(file).load()
            except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError, IndexError, KeyError) as error:
                raise InvalidStateError(f"{self._folder / METADATA} is no metadata of torch's ({_first_line(error)})") from error
            if not isinstance(found, Metadata):
                raise InvalidStateError(f"{self._folder / METADATA} is no metadata of torch's, but a {type(found).__name__}")
            found.storage_meta = found.storage_meta or StorageMeta()
            self._known = found
        return self._known


class _Unpickler(pickle.Unpickler):
    """Knows torch's descriptions of checkpoints, and no function that does anything."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module == _DESCRIPTIONS or (module, name) in _OTHERS:
            found = super().find_class(module, name)
            if (module, name) in _OTHERS or getattr(found, "__module__", None) == _DESCRIPTIONS:
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}")


class _Planner(DefaultLoadPlanner):
    """Loads a flat dictionary; values that are no tensors as weights_only."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False)

    def load_bytes(self, read_item: ReadItem, value: Any) -> None:
        self.original_state_dict[read_item.dest_index.fqn] = unpack(value.read())


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
