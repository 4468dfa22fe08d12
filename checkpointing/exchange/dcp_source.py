"""A folder of `torch.distributed.checkpoint` as the source of an import.

Holds: nothing of the folder runs as code: its metadata may name torch's own descriptions alone, values are loaded as weights_only.
Memory is bounded by twice the largest tensor (torch reads a piece whole, and copies it into its place), or BATCH_BYTES.
"""

import pickle  # nosec B403  # by an unpickler that knows a few classes alone
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
from trainhouse.checkpointing.exchange.dcp_checks import Keys, check_metadata, paths_of
from trainhouse.checkpointing.exchange.dcp_format import METADATA
from trainhouse.checkpointing.exchange.source_folder import inside
from trainhouse.checkpointing.state.state_tree import some_of, unpack

MODEL, OPTIMIZER = "model", "optimizer"
BATCH_BYTES = 64 * 2**20
_DESCRIPTIONS = "torch.distributed.checkpoint.metadata"
_OTHERS = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
}


class DcpSource:
    """One folder. Raises InvalidStateError where it is not what torch writes.

    `parts`: names of its parts. A single dictionary around them, as PyTorch's recipes have one, is left out, and their `optim` is called
    optimizer; a folder without either part is taken for the model as a whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = _Reader(folder)
        described = self._reader.read_metadata()
        with _damage_of(folder / METADATA):
            self._described = described.state_dict_metadata
            check_metadata(folder, described)
            self._paths = _by_part(paths_of(folder, described))
        self.parts = frozenset(str(path[0]) for path in self._paths.values())
        self._empty: dict[str, torch.Tensor] = {}

    def values(self, parts: frozenset[str]) -> dict[str, Any]:
        """The nested state of these parts, its tensors on no device."""
        taken = {name: path for name, path in self._paths.items() if path[0] in parts}
        for name in taken:
            found = self._described[name]
            if isinstance(found, TensorStorageMetadata):
                self._empty[name] = torch.empty(found.size, dtype=found.properties.dtype, device="meta")
        others = self._load({name: None for name in taken if name not in self._empty})
        try:
            nested: dict[str, Any] = unflatten_state_dict({name: self._empty.get(name, others.get(name)) for name in taken}, taken)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidStateError(f"{self._folder / METADATA}: its names make no state ({_first_line(error)})") from error
        return nested

    def tensors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The tensors of `values`, each with its values."""
        batch: dict[str, Any] = {}
        size = 0
        for name, empty in self._empty.items():
            if batch and size + empty.nbytes > BATCH_BYTES:
                yield from self._loaded(batch)
                batch, size = {}, 0
            batch[name] = torch.empty(empty.shape, dtype=empty.dtype)
            size += empty.nbytes
        yield from self._loaded(batch)

    def _loaded(self, batch: dict[str, Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for name, tensor in self._load(batch).items():
            yield self._empty[name], tensor

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
            with inside(self._folder, METADATA).open("rb") as file, _damage_of(self._folder / METADATA):
                found = _Unpickler(file).load()
            if not isinstance(found, Metadata):
                raise InvalidStateError(f"{self._folder / METADATA} is no metadata of torch's, but a {type(found).__name__}")
            found.storage_meta = getattr(found, "storage_meta", None) or StorageMeta()
            self._known = found
        return self._known


class _Unpickler(pickle.Unpickler):
    """Knows torch's descriptions of checkpoints, and no function that does anything."""

    def find_class(self, module: str, name: str) -> Any:
        module = "pathlib" if module == "pathlib._local" else module  # Python 3.13's name for it
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


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Makes sentences of what damaged metadata raises: its objects may lack fields, and its counts may be anything."""
    try:
        yield
    except (pickle.UnpicklingError, EOFError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise InvalidStateError(f"{path} is no metadata of torch's ({_first_line(error)})") from error


def _by_part(paths: dict[str, Keys]) -> dict[str, Keys]:
    """The paths as Trainhouse names parts."""
    tops = {path[0] for path in paths.values()}
    if len(tops) == 1 and MODEL not in tops and all(len(path) > 1 for path in paths.values()) and MODEL in {p[1] for p in paths.values()}:
        paths = {name: path[1:] for name, path in paths.items()}
        tops = {path[0] for path in paths.values()}
    if not tops & {MODEL, OPTIMIZER}:
        return {name: (MODEL, *path) for name, path in paths.items()}
    if OPTIMIZER in tops:
        return paths
    return {name: (OPTIMIZER, *path[1:]) if path[0] == "optim" else path for name, path in paths.items()}


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:300]}"
