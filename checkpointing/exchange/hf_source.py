"""A folder of safetensors files, as Hugging Face's libraries save models, as the source of an import. Memory is bounded by BLOCK_BYTES."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.safetensors_format import DTYPES, INDEX
from trainhouse.checkpointing.exchange.source_folder import inside, json_object
from trainhouse.checkpointing.state.balance import split_rows
from trainhouse.checkpointing.state.state_tree import some_of

_SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})\.safetensors")
_TORCH_NAMES = {name: dtype for dtype, name in DTYPES.items()}
CONFIG = "config.json"


class HfSource:
    """One folder: a model's weights, and its configuration where there is one."""

    def __init__(self, folder: Path) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise InvalidStateError(f"reading {folder} needs safetensors' library: pip install 'trainhouse[huggingface]'") from error
        self._open = safe_open
        self._files: dict[str, Path] = {}
        self._empty: dict[str, torch.Tensor] = {}
        for path in _files(folder):
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - it is no mapping
                        found = file.get_slice(name)
                        self._add(name, path, found.get_dtype(), found.get_shape())
            except (SafetensorError, OSError) as error:
                raise InvalidStateError(f"{path} is no whole safetensors file ({error})") from error
        self._check_index(folder)
        config = inside(folder, CONFIG)
        self._config = json_object(config) if config.exists() else None

    def values(self) -> dict[str, Any]:
        """The state, its tensors on no device."""
        config = {} if self._config is None else {"extra.config": self._config}
        return {"model": dict(self._empty), **config}

    def pieces(self, name: str) -> Iterator[tuple[int, torch.Tensor]]:
        """The rows of one of the model's tensors in pieces, each with its first row."""
        shape = self._empty[name].shape
        with self._open(self._files[name], framework="pt") as file:
            cuts = split_rows(shape, self._empty[name].element_size(), 1)
            if len(cuts) == 1:
                yield 0, file.get_tensor(name)
                return
            whole = file.get_slice(name)
            for start, rows in cuts:
                yield start, whole[start : start + rows]

    def _add(self, name: str, path: Path, dtype: str, shape: list[int]) -> None:
        if name in self._files:
            raise InvalidStateError(f"{path} and {self._files[name].name} both hold {name}: keep one of them in the folder")
        if dtype not in _TORCH_NAMES:
            raise InvalidStateError(f"{name} of {path} is of {dtype}, which this torch has no name for")
        self._files[name] = path
        self._empty[name] = torch.empty(shape, dtype=getattr(torch, _TORCH_NAMES[dtype]), device="meta")

    def _check_index(self, folder: Path) -> None:
        """Raises InvalidStateError where the index names what is not there."""
        missing = sorted(_weight_map(folder).keys() - self._files.keys())
        if missing:
            raise InvalidStateError(f"{folder} is not whole: {INDEX} names {some_of(missing)}, which no file holds")


def _files(folder: Path) -> list[Path]:
    """The files to read: those that the index names where there is one, else all. Raises InvalidStateError where shards are missing."""
    named = sorted(set(_weight_map(folder).values()))
    if named:
        return [path for path in (inside(folder, name) for name in named) if path.exists()]
    paths = sorted(inside(folder, path.name) for path in folder.glob("*.safetensors"))
    there = {path.name for path in paths}
    for path in paths:
        shard = _SHARD.fullmatch(path.name)
        if shard is None:
            continue
        count, width = int(shard["count"]), len(shard["number"])
        if any(f"{shard['stem']}-{n:0{width}d}-of-{shard['count']}.safetensors" not in there for n in range(1, count + 1)):
            raise InvalidStateError(f"{folder} is not whole: {path.name} is one of {count} files, and not all are there; fetch the others")
    return paths


def _weight_map(folder: Path) -> dict[str, str]:
    """The file of each tensor as the index says; none where there is no index."""
    path = inside(folder, INDEX)
    if not path.exists():
        return {}
    named = json_object(path).get("weight_map")
    if not isinstance(named, dict) or not named or not all(isinstance(file, str) and file for file in named.values()):
        raise InvalidStateError(f"{path} has no weight_map of tensors to files; fetch it anew, or remove it to import all files")
    return named
