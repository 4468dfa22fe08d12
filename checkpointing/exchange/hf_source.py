"""A folder of safetensors files, as Hugging Face's libraries save models, as the source of an import. Memory is bounded by BLOCK_BYTES."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import torch

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.safetensors_format import DTYPES, INDEX
from trainhouse.checkpointing.state.balance import split_rows
from trainhouse.checkpointing.state.state_tree import some_of

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
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - it is no mapping
                        found = file.get_slice(name)
                        self._add(name, path, found.get_dtype(), found.get_shape())
            except (SafetensorError, OSError) as error:
                raise InvalidStateError(f"{path} is no whole safetensors file ({error})") from error
        self._check_index(folder)
        self._config = _json(folder / CONFIG) if (folder / CONFIG).exists() else None

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
        if not (folder / INDEX).exists():
            return
        named = _json(folder / INDEX).get("weight_map", {})
        missing = sorted(set(named) - set(self._files))
        if missing:
            raise InvalidStateError(f"{folder} is not whole: {INDEX} names {some_of(missing)}, which no file holds")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise InvalidStateError(f"{path} is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise InvalidStateError(f"{path} is no JSON object")
    return found
