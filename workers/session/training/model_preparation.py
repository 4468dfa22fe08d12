"""Precision, activation checkpoints and compilation of a model, in place: names of parameters, hooks and the class stay as they are.

Holds: it comes before `DistributedDataParallel`, `fully_shard` and `PipelineStage`, which then wrap what it made. What a model returns is
float32 again where its type was lowered, so that a loss is computed in float32.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from trainhouse.events.model.training import Precision, Training
from trainhouse.workers.session.errors import InvalidUseError

LOWERED = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def prepare(model: torch.nn.Module, blocks: Iterable[torch.nn.Module], settings: Training, device: torch.device) -> None:
    """Prepares `model`; `blocks`: its layers, each of which is computed again and compiled by itself. Raises InvalidUseError."""
    inner = list(blocks)
    if settings.activation_checkpointing:
        if not inner:
            raise InvalidUseError(
                "training.activation_checkpointing = true: prepare(model, blocks=...) needs the layers that are computed again, "
                "such as blocks=model.layers"
            )
        for block in inner:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if settings.compile:
        for block in inner or [model]:
            block.compile()
    if settings.precision in LOWERED:
        model.forward = _Lowered(model.forward, device.type, LOWERED[settings.precision])


class _Lowered:
    """A forward pass under autocast, whose results are float32."""

    def __init__(self, forward: Callable[..., Any], device_type: str, kind: torch.dtype) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._device_type = device_type
        self._kind = kind

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        with torch.autocast(self._device_type, self._kind):
            output = self._forward(*inputs, **named)
        return _raised(output, self._kind)


def _raised(value: Any, kind: torch.dtype) -> Any:
    """The value with tensors of this type as float32, in lists, tuples and mappings too."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == kind else value
    if isinstance(value, dict):  # of a library, perhaps: its own class stays
        for key, part in list(value.items()):
            value[key] = _raised(part, kind)
        return value
    if isinstance(value, (list, tuple)):
        parts = [_raised(part, kind) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
