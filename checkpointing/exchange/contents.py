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
from trainhouse.checkpointing.state.state_tree import put_together, some_of, tensor_names, unpack


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

    def flat(self) -> Flat:
        """The values by flat names. Raises InvalidStateError if two of them would be called the same."""
        empty = {name: torch.empty(t.record.shape, dtype=t.dtype, device="meta") for name, t in self._stored.items()}
        stored = {id(tensor): self._stored[name] for name, tensor in empty.items()}
        try:
            values, paths = flatten_state_dict(put_together(self._skeleton, empty))
        except ValueError as error:
            raise InvalidStateError(
                f"{self.manifest.job_id}@{self.manifest.commit} has two values of one name ({error}); export it with --format torch"
            ) from error
        return Flat({name: stored.get(id(value), value) for name, value in values.items()}, paths)
