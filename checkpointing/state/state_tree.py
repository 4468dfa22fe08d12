"""A training state as tensors by name, and one skeleton that holds all the rest and says where the tensors go.

Holds: taking apart and putting together gives the same containers, key types and values. The skeleton is loaded without running
code of the checkpoint's (torch's weights_only), and saving refuses what could not be loaded so.
Mappings other than OrderedDict come back as dict. Never: copies a tensor.
"""

import io
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.stateful import Stateful

from trainhouse.checkpointing.errors import InvalidStateError

_MARK = "\0tensor"
MAX_NAMED = 8
_PLAIN = frozenset({type(None), bool, int, float, str})


@dataclass(frozen=True)
class TakenApart:
    """`tensors` by dotted name, and the skeleton's bytes."""

    tensors: dict[str, torch.Tensor]
    skeleton: bytes


def values_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with each Stateful replaced by its `state_dict()`, in the order of keys."""
    return {k: state[k].state_dict() if isinstance(state[k], Stateful) else state[k] for k in sorted(state)}


def take_apart(values: Mapping[str, Any]) -> TakenApart:
    """Splits nested values. Raises InvalidStateError, naming the place, for what cannot be saved."""
    strip = _Strip()
    skeleton = strip.value(values, "")
    return TakenApart(strip.tensors, pack(skeleton, "state", plain=strip.leaves <= _PLAIN))


def stripped(values: Mapping[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Splits nested values into a skeleton that is not packed, and tensors by name."""
    strip = _Strip()
    return strip.value(values, ""), strip.tensors


def tensor_names(skeleton: Any) -> list[str]:
    """Names of the tensors that belong into an unpacked skeleton, or into a part of one."""
    names: list[str] = []

    def note(value: Any) -> Any:
        if is_mark(value):
            names.append(value[1])
            return value
        return _rebuild(value, note)

    note(skeleton)
    return names


def put_together(skeleton: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """An unpacked skeleton, or a part of one, with its tensors in their places."""

    def fill(value: Any) -> Any:
        return tensors[value[1]] if is_mark(value) else _rebuild(value, fill)

    return fill(skeleton)


def pack(value: Any, name: str, plain: bool = False) -> bytes:
    """Bytes of a small nested value (numbers, strings, containers, tensors, numpy arrays). Raises InvalidStateError.

    `plain`: it is known to hold nothing that could not be loaded, so that this need not be tried.
    """
    written = io.BytesIO()
    try:
        torch.save(value, written)
        if not plain:
            unpack(written.getvalue())
    except Exception as error:
        raise InvalidStateError(
            f"{name} holds something that cannot be saved safely ({str(error).strip().splitlines()[0]}); "
            "keep to numbers, strings, lists, dicts, tensors and numpy arrays, or give the object a state_dict()"
        ) from error
    return written.getvalue()


def unpack(content: bytes) -> Any:
    """Restores the object that `pack` took apart. Runs no code of the content's."""
    with _numpy_allowed():
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


class _Strip:
    """One pass over nested values: tensors by name, and the types of what else there is.

    A dictionary without tensors that occurs again, as settings of many parameters, is one in the skeleton too.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.leaves: set[type] = set()
        self._seen: dict[int, tuple[Any, Any]] = {}

    def value(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            return _take(value, name, self.tensors)
        if isinstance(value, Mapping):
            return self._seen[id(value)][1] if id(value) in self._seen else self._mapping(value, name)
        if type(value) in (list, tuple):
            return type(value)(self.value(v, inner_name(name, i)) for i, v in enumerate(value))
        self.leaves.add(type(value))
        return value

    def _mapping(self, value: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
        before = len(self.tensors)
        self.leaves.update(map(type, value))
        kept: dict[Any, Any] = {k: self.value(v, inner_name(name, k)) for k, v in value.items()}
        if isinstance(value, OrderedDict):
            kept = OrderedDict(kept)
        if len(self.tensors) == before:
            self._seen[id(value)] = (value, kept)  # held, so that no other gets its id
        return kept


def some_of(names: Sequence[str]) -> str:
    """Names of tensors for a message: the first MAX_NAMED, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def inner_name(name: str, key: object) -> str:
    """Name of what lies under a key: unique, since dots in keys are escaped, and empty keys and those other than strings bracketed."""
    part = re.sub(r"([\\.\[])", r"\\\1", key) if isinstance(key, str) and key else f"[{key!r}]"
    return f"{name}.{part}" if name else part


def _take(tensor: torch.Tensor, name: str, tensors: dict[str, torch.Tensor]) -> tuple[str, str]:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InvalidStateError(f"{name} is a {tensor.layout} tensor; only dense ones can be saved: convert it in your state_dict()")
    tensors[name] = tensor.detach()
    return (_MARK, name)


def is_mark(value: Any) -> bool:
    """Returns whether a value of a skeleton stands for a tensor."""
    return type(value) is tuple and len(value) == 2 and value[0] == _MARK


def _rebuild(value: Any, fill: Any) -> Any:
    if isinstance(value, Mapping):
        filled = {k: fill(v) for k, v in value.items()}
        return OrderedDict(filled) if isinstance(value, OrderedDict) else filled
    if type(value) in (list, tuple):
        return type(value)(fill(v) for v in value)
    return value


@contextmanager
def _numpy_allowed() -> Iterator[None]:
    """Lets weights_only pass numpy's arrays and scalars, which are data."""
    kinds = [type(np.dtype(code)) for code in "?bhilqBHILQefdFDSU"]
    with torch.serialization.safe_globals(
        [np.ndarray, np.dtype, np._core.multiarray._reconstruct, np._core.multiarray.scalar, *dict.fromkeys(kinds)]  # type: ignore[attr-defined]
    ):
        yield
