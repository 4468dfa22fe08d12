"""Union of the ranks' states: one skeleton that holds the keys of all of them, or the keys and ranks that disagree.

Holds: what all ranks have alike is in it once, and what only some have (a pipeline stage) is in it too. Under one name there is one
structure, one dtype and one shape; of plain tensors, which the ranks write in shares, some elements are compared. Numbers may differ, as
those of a rank's own do: the lowest rank's are in it. Never: collective.
"""

import hashlib
import pickle  # nosec B403  # to compare, never to read
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state.state_tree import TakenApart, inner_name, is_mark, pack, some_of, unpack

SAMPLES = 16
TOLERANCE = 0.01
"""Of the largest element compared: ranks on other devices round otherwise, another tensor under the same name is elsewhere."""
T = TypeVar("T")
_Path = tuple[Any, ...]


@dataclass(frozen=True)
class RankState:
    """State of one rank without its tensors: their layouts by name, and of plain ones some elements.

    `unsynced`: names of tensors whose values may differ between ranks; the lowest rank's are saved.
    """

    skeleton: bytes
    layouts: dict[str, str]
    samples: dict[str, tuple[float, ...]]
    unsynced: frozenset[str]

    def digest(self) -> bytes:
        """Returns a hash that is alike for ranks that agree; ranks that agree may have different ones."""
        return hashlib.sha256(pickle.dumps((self.skeleton, self.layouts, self.samples, sorted(self.unsynced)))).digest()


@dataclass(frozen=True)
class Union:
    """The skeleton of all ranks, and the names of tensors whose values may differ.

    `unlike`: by key, a message about numbers that the ranks do not have alike.
    """

    skeleton: bytes
    unsynced: frozenset[str]
    unlike: Mapping[str, str] = field(default_factory=dict)


def rank_state(apart: TakenApart, unsynced: Collection[str], sampled: bool) -> RankState:
    """Returns what the other ranks need to know of a rank's state; without samples unless `sampled`."""
    plain = {name: t for name, t in apart.tensors.items() if sampled and type(t) is torch.Tensor and t.numel() and name not in unsynced}
    layouts = {name: f"{t.dtype} {tuple(t.shape)}{' sharded' * isinstance(t, DTensor)}" for name, t in apart.tensors.items()}
    return RankState(apart.skeleton, layouts, _samples(plain), frozenset(unsynced))


def union(states: Mapping[int, RankState]) -> Union:
    """Returns the union of the states, by rank, lowest first. Raises InvalidStateError, naming the keys and ranks that disagree."""
    for name, (one, other) in _unlike({rank: state.layouts for rank, state in states.items()}, str.__eq__).items():
        layouts = (f"{states[rank].layouts[name]} on rank {rank}" for rank in (one, other))
        raise InvalidStateError(f"{name}: {', '.join(layouts)}; {_ADVICE}")
    differ = _unlike({rank: state.samples for rank, state in states.items()}, _close)
    for one, other in list(differ.values())[:1]:
        raise InvalidStateError(f"{some_of(sorted(differ))}: rank {other} holds other values than rank {one}; {_ADVICE}")
    skeletons = {rank: unpack(packed) for rank, packed in _distinct(states).items()}
    merged: Any = {}
    unlike: dict[_Path, int] = {}
    for rank, skeleton in skeletons.items():
        differing: list[_Path] = []
        try:
            merged = _merged(merged, skeleton, (), differing)
        except _ConflictError as conflict:
            name, _, values = _held(conflict.path, skeletons, rank)
            raise InvalidStateError(f"{name}: {values}; {_ADVICE}") from conflict
        for path in differing:
            unlike.setdefault(path, rank)
    warnings = dict(_warning(*_held(path, skeletons, rank)) for path, rank in unlike.items())
    return Union(pack(merged, "state"), frozenset().union(*(state.unsynced for state in states.values())), warnings)


def _distinct(states: Mapping[int, RankState]) -> dict[int, bytes]:
    """By the first rank that has it, each different skeleton."""
    first: dict[bytes, int] = {}
    for rank, state in states.items():
        first.setdefault(state.skeleton, rank)
    return {rank: skeleton for skeleton, rank in first.items()}


def _unlike(of_rank: Mapping[int, Mapping[str, T]], alike: Callable[[T, T], bool]) -> dict[str, tuple[int, int]]:
    """The names under which two ranks hold different things, and the first two such ranks."""
    first: dict[str, int] = {}
    unlike: dict[str, tuple[int, int]] = {}
    for rank, values in of_rank.items():
        for name, value in values.items():
            if not alike(value, of_rank[first.setdefault(name, rank)][name]):
                unlike.setdefault(name, (first[name], rank))
    return unlike


def _close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """True for what ranks may compute from the same numbers on other devices."""
    largest = max(map(abs, one), default=0.0)
    return one == other or bool(np.allclose(one, other, rtol=0.0, atol=TOLERANCE * largest, equal_nan=True))


_ADVICE = (
    "what is tracked is alike on all ranks, sharded as DTensor, or has a name of its own on each rank, as layers of pipeline stages have"
)


class _ConflictError(Exception):
    """Two values under the keys of `path`."""

    def __init__(self, path: _Path) -> None:
        super().__init__(path)
        self.path = path


def _merged(one: Any, other: Any, path: _Path, differing: list[_Path]) -> Any:
    """The union of nested values; adds to `differing` where these are numbers that differ. Raises _ConflictError."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        merged = dict(one)
        for key, value in other.items():
            merged[key] = _merged(one[key], value, (*path, key), differing) if key in one else value
        return OrderedDict(merged) if isinstance(one, OrderedDict) else merged
    if _alike(one, other):
        return one
    if _plain(one) and _plain(other):
        differing.append(path)
        return one
    if type(one) is type(other) and type(one) in (list, tuple) and len(one) == len(other) and not is_mark(one):
        return type(one)(_merged(a, b, (*path, i), differing) for i, (a, b) in enumerate(zip(one, other, strict=True)))
    raise _ConflictError(path)


def _plain(value: Any) -> bool:
    """True for a number, text or array, and a list of such: what a rank may have of its own without another structure."""
    if type(value) in (list, tuple):
        return not is_mark(value) and all(map(_plain, value))
    return not isinstance(value, Mapping)


def _held(path: _Path, skeletons: Mapping[int, Any], rank: int) -> tuple[str, int, str]:
    """The name of these keys, the first rank that has them, and what it and `rank` hold under them."""
    name = ""
    for key in path:
        name = inner_name(name, key)
    first = next(other for other in skeletons if other == rank or _has(skeletons[other], path))
    return name, first, ", ".join(f"{_described(_at(skeletons[r], path))} on rank {r}" for r in (first, rank))


def _warning(name: str, first: int, values: str) -> tuple[str, str]:
    """The name, and a message about numbers that differ."""
    return name, (
        f"{name}: {values}; rank {first}'s is saved, and restored on all ranks: reduce it over the ranks if it should be alike, "
        "or give it another name on each rank"
    )


def _has(skeleton: Any, path: _Path) -> bool:
    try:
        _at(skeleton, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _at(skeleton: Any, path: _Path) -> Any:
    for key in path:
        skeleton = skeleton[key]
    return skeleton


def _alike(one: Any, other: Any) -> bool:
    """True for equal values, and for those that are no numbers in the same way."""
    return (type(one) is type(other) and pickle.dumps(one) == pickle.dumps(other)) or _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):  # arrays answer for each element
        return False


def _described(value: Any) -> str:
    return "a tensor" if is_mark(value) else repr(value)[:80]


def _samples(plain: Mapping[str, torch.Tensor]) -> dict[str, tuple[float, ...]]:
    """Some elements of each tensor, in one copy from each device."""
    by_device: dict[torch.device, dict[str, torch.Tensor]] = {}
    for name, tensor in plain.items():
        with suppress(NotImplementedError):  # dtypes of packed bits (float4, int4) convert to no other
            by_device.setdefault(tensor.device, {})[name] = _some(tensor)
    found: dict[str, tuple[float, ...]] = {}
    for some in by_device.values():
        numbers, at = torch.cat(list(some.values())).tolist(), 0
        for name, part in some.items():
            found[name], at = tuple(numbers[at : at + len(part)]), at + len(part)
    return found


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements from all over a tensor: the same in each memory order. Raises NotImplementedError for dtypes without numbers."""
    every = max(1, tensor.numel() // SAMPLES)
    if tensor.is_contiguous():
        some = tensor.reshape(-1)[::every][:SAMPLES]
    else:
        at = torch.arange(0, tensor.numel(), every, device=tensor.device)[:SAMPLES]
        some = tensor[torch.unravel_index(at, tensor.shape)]
    some = some.resolve_conj()
    return (torch.view_as_real(some).reshape(-1) if some.is_complex() else some).to(torch.float64)
