"""Contents of one checkpoint for an export: its values with tensors that have no memory, and where the bytes of these are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from trainhouse.checkpointing.chain.chunks import ChunkStore, prefix_of
from trainhouse.checkpointing.chain.manifest import Manifest, TensorRecord
from trainhouse.checkpointing.errors import DamagedError, InvalidStateError
from trainhouse.checkpointing.exchange.manifest_check import check_manifest
from trainhouse.checkpointing.state.dcp_storage import dtype_named
from trainhouse.checkpointing.state.state_tree import inner_name, is_mark, put_together, some_of, tensor_names, unpack


@dataclass(frozen=True)
class StoredTensor:
    """A tensor whose bytes are in the store."""

    name: str
    record: TensorRecord

    @property
    def dtype(self) -> torch.dtype:
        return dtype_named(self.record.dtype)

    @property
    def item_bytes(self) -> int:
        return self.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        count = self.item_bytes
        for size in self.record.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Flat:
    """Values by the names that `torch.distributed.checkpoint` gives them, and the path of each; tensors are `StoredTensor`s."""

    values: Mapping[str, Any]
    paths: Mapping[str, tuple[str | int, ...]]

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """The tensors."""
        return {name: value for name, value in self.values.items() if isinstance(value, StoredTensor)}

    @property
    def others(self) -> dict[str, Any]:
        """The values that are no tensors."""
        return {name: value for name, value in self.values.items() if not isinstance(value, StoredTensor)}


class Contents:
    """State of one manifest. Raises DamagedError where its skeleton is damaged, or its numbers do not fit each other."""

    def __init__(self, manifest: Manifest, chunks: ChunkStore) -> None:
        self.manifest = manifest
        check_manifest(manifest)
        span = manifest.structure
        body = chunks.fetch(manifest.chunks[span.chunk], prefix_of(manifest))
        self._skeleton: dict[str, Any] = unpack(body[span.offset : span.offset + span.size_bytes])
        names = tensor_names(self._skeleton)
        if missing := sorted(set(names) - set(manifest.tensors)):
            raise DamagedError(f"{manifest.job_id}@{manifest.commit} has no tensors {some_of(missing)}, which its state names")
        self._stored = {name: StoredTensor(name, manifest.tensors[name]) for name in names}

    @property
    def parts(self) -> list[str]:
        """Names of its parts: model, optimizer and so on."""
        return sorted(self._skeleton)

    def nested(self) -> dict[str, Any]:
        """The values as they were tracked, with `StoredTensor`s in the places of tensors."""
        filled: dict[str, Any] = put_together(self._skeleton, self._stored)  # type: ignore[arg-type]  # puts any object there
        return filled

    def flat(self, whole: bool = False) -> Flat:
        """The values by flat names. Raises InvalidStateError if two of them would be called the same.

        `whole`: what its names and paths do not hold, mappings that are empty or have keys other than strings, is one value each, so that
        all of it can be put together again. Raises InvalidStateError where there are tensors in such a mapping, or in a tuple.
        """
        empty = {name: torch.empty(t.record.shape, dtype=t.dtype, device="meta") for name, t in self._stored.items()}
        stored = {id(tensor): self._stored[name] for name, tensor in empty.items()}
        where = f"{self.manifest.job_id}@{self.manifest.commit}"
        skeleton = {key: _kept_whole(value, key, where) for key, value in self._skeleton.items()} if whole else self._skeleton
        try:
            values, paths = flatten_state_dict(put_together(skeleton, empty))
        except ValueError as error:
            raise InvalidStateError(f"{where} has two values of one name ({error}); export it with --format torch") from error
        opened = {name: value.value if isinstance(value, _Whole) else value for name, value in values.items()}
        return Flat({name: stored.get(id(value), value) for name, value in opened.items()}, paths)


@dataclass(frozen=True)
class _Whole:
    """A value of a skeleton that is not taken apart."""

    value: Any


def _kept_whole(value: Any, name: str, where: str) -> Any:
    """A value of a skeleton, with `_Whole`s in it for what torch's flat names and paths would not give back."""
    if is_mark(value):
        return value
    is_mapping = isinstance(value, Mapping)
    if is_mapping and value and all(isinstance(key, str) for key in value):
        return {key: _kept_whole(inner, inner_name(name, key), where) for key, inner in value.items()}
    has_tensors = bool(tensor_names(value))
    if type(value) is list:
        inners = [_kept_whole(inner, inner_name(name, number), where) for number, inner in enumerate(value)]
        return _Whole(value) if not has_tensors and any(isinstance(inner, _Whole) for inner in inners) else inners
    if has_tensors:
        kind = "a mapping with keys that are no strings" if is_mapping else "a tuple"
        raise InvalidStateError(f"{name} of {where} is {kind} with tensors in it, which dcp cannot hold; use --format torch")
    return _Whole(value) if is_mapping else value
