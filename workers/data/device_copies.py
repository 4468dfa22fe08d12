"""Batches copied to the rank's device, beside the work that training has given it already.

Holds: what training gives its device after `of` begins after the copies; the host waits for none. A tensor that is on the device already is
given back as it is, and so is all that is no tensor. On a host without a device nothing is copied.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch


class SideStream(Protocol):
    """A stream beside training's own that copies to a device."""

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        """Begins a copy, which need not wait for what training has given its device so far."""

    def hand_over(self, copies: list[torch.Tensor]) -> None:
        """Lets what training gives its device from now on begin after the copies; their memory is its own from then on."""


class DeviceCopies:
    """Copies of one loader's batches."""

    def __init__(self, stream: SideStream) -> None:
        self._stream = stream

    def of(self, batch: Any) -> Any:
        """The batch with all tensors in its mappings, lists and tuples on the device. Blocks only for tensors that are not pinned."""
        copies: list[torch.Tensor] = []
        moved = self._moved(batch, copies)
        if copies:
            self._stream.hand_over(copies)
        return moved

    def _moved(self, value: Any, copies: list[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            if value.device.type != "cpu":
                return value
            copies.append(self._stream.copy(value))
            return copies[-1]
        if isinstance(value, Mapping):
            moved = {key: self._moved(one, copies) for key, one in value.items()}
            return moved if type(value) is dict else type(value)(moved)  # type: ignore[call-arg]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._moved(one, copies) for one in value))
        if isinstance(value, list | tuple):
            return type(value)(self._moved(one, copies) for one in value)
        return value


class CudaSideStream:
    """A side stream of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copy(self, source: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(self._stream):
            return source.to(self._device, non_blocking=True)

    def hand_over(self, copies: list[torch.Tensor]) -> None:
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._stream)
        for copy in copies:  # else the side stream would use their memory again while training reads it
            copy.record_stream(training)
