"""Text that every Python carries: the documentation topics of pydoc and the sources of the standard library, split by file.

Holds: the same Python gives the same bytes in the same order; a file is wholly in one part, chosen by the hash of its name.
"""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HELD_OUT_OF = 10


@dataclass(frozen=True)
class Corpus:
    """Bytes as uint8 tensors, one after another; `files` counts those of both parts."""

    train: Tensor
    held_out: Tensor
    files: int


def load_corpus() -> Corpus:
    """Read it: about 5 MB from the disk."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted([*root.glob("*.py"), root / "pydoc_data" / "topics.py"])
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    for path in paths:
        parts[_held_out(path.relative_to(root).as_posix())].append(path.read_bytes())
    return Corpus(_tensor(parts[False]), _tensor(parts[True]), len(paths))


def _held_out(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % HELD_OUT_OF == 0


def _tensor(files: list[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8)


class Windows:
    """An endless loader of batches of windows, in an order shuffled by the seed, each rank its own share; resumable.

    Its state counts the windows that the whole gang has taken, so another number of ranks goes on from there: none is left out or
    taken twice in a pass over the text, but for the last few that do not fill a batch of every rank.
    A batch is `(batch, context + 1)` int64: inputs are all but the last byte, targets all but the first.
    """

    def __init__(self, text: Tensor, context: int, batch: int, seed: int, rank: int, world_size: int) -> None:
        self._text, self._context, self._batch, self._seed = text, context, batch, seed
        self._rank = rank
        self._windows = (len(text) - 1) // context
        self._of_gang = batch * world_size
        if self._windows < self._of_gang:
            raise ValueError(f"{len(text)} bytes hold no batch of {batch} windows of {context} for {world_size} ranks; take smaller ones")
        self._data_pass, self._taken = 0, 0
        self._order = self._shuffled()

    def __next__(self) -> Tensor:
        if self._taken + self._of_gang > self._windows:
            self._data_pass, self._taken = self._data_pass + 1, 0
            self._order = self._shuffled()
        first = self._taken + self._rank * self._batch
        self._taken += self._of_gang
        return windows_at(self._text, self._order[first : first + self._batch] * self._context, self._context)

    def __iter__(self) -> "Windows":
        return self

    def state_dict(self) -> dict[str, Any]:
        return {"scope": "gang", "data_pass": self._data_pass, "windows_taken": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._data_pass, self._taken = state["data_pass"], state["windows_taken"]
        self._order = self._shuffled()

    def _shuffled(self) -> Tensor:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._data_pass)
        return torch.randperm(self._windows, generator=generator)


def windows_at(text: Tensor, starts: Tensor, context: int) -> Tensor:
    """The windows of `context + 1` bytes that begin at `starts`, as int64 `(len(starts), context + 1)`."""
    return text[starts[:, None] + torch.arange(context + 1)].long()
