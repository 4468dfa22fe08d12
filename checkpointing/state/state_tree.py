"""A training state as tensors by name, and one skeleton that holds all the rest and says where the tensors go.

Holds: taking apart and putting together gives the same containers, key types and values. The skeleton is loaded without running
code of the checkpoint's (torch's weights_only), and saving refuses what could not be loaded so.
Mappings other than OrderedDict come back as dict. Never: copies a tensor.
"""

import io
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.stateful import Stateful

from trainhouse.checkpointing.errors import InvalidStateError

_MARK = "\0tensor"


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
    skeleton, tensors = stripped(values)
    return TakenApart(tensors, pack(skeleton, "state"))


def stripped(values: Mapping[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Splits nested values into a skeleton that is not packed, and tensors by name."""
    tensors: dict[str, torch.Tensor] = {}
    return _strip(values, "", tensors), tensors


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


def pack(value: Any, name: str) -> bytes:
    """Bytes of a small nested value (numbers, strings, containers, tensors, numpy arrays). Raises InvalidStateError."""
    written = io.BytesIO()
    try:
        torch.save(value, written)
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


def _strip(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return _take(value, name, tensors)
    if isinstance(value, Mapping):
        kept = {k: _strip(v, inner_name(name, k), tensors) for k, v in value.items()}
        return OrderedDict(kept) if isinstance(value, OrderedDict) else kept
    if type(value) in (list, tuple):
        return type(value)(_strip(v, inner_name(name, i), tensors) for i, v in enumerate(value))
    return value


def inner_name(name: str, key: object) -> str:
    """Name of what lies under a key: unique, since dots in keys are escaped and keys other than strings bracketed."""
    part = re.sub(r"([\\.\[])", r"\\\1", key) if isinstance(key, str) else f"[{key!r}]"
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
