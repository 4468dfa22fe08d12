"""Copies of tensors into host memory, at once or beside the device's work.

Holds: what is copied is the value at the call of `copy`, whatever training does to the tensor afterwards. A tensor of host memory is copied
before `copy` returns. A device's tensors are copied beside the host's work: what training gives its device after `end` begins after the
copies, so that nothing can change them first, be it a step, a clamp, a swap of averages or a replayed graph.
Never: allocates host memory for a contiguous tensor.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch


class Mark(Protocol):
    """A point in a stream of copies."""

    def wait(self) -> None:
        """Blocks until the stream has come here."""

    def hold(self) -> None:
        """Lets all that training gives its device from now on begin after this point. Blocks only where a device cannot wait by itself."""


class CopyStream(Protocol):
    """A stream beside training's own that copies from a device."""

    def follow(self) -> None:
        """Copies from now on begin after what training has given its device so far."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begins a copy of bytes."""

    def mark(self) -> Mark:
        """The point after all copies so far."""

    def pin(self, memory: torch.Tensor) -> None:
        """Host memory that is copied to from now on, instead of what was pinned before."""


class Copier:
    """Copies for one rank. `stream`: None where the tensors are in host memory."""

    def __init__(self, stream: CopyStream | None = None) -> None:
        self._stream = stream

    def begin(self, memory: torch.Tensor, remapped: bool) -> None:
        """A save begins that is staged in this memory."""
        if self._stream is None:
            return
        if remapped:
            self._stream.pin(memory)
        self._stream.follow()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copies a tensor's values to `target`, which is bytes, row-major."""
        source = source.detach().resolve_conj().resolve_neg()
        if not source.numel():
            return
        if not source.is_contiguous():
            source = source.contiguous()
        flat = source.reshape(-1).view(torch.uint8)
        if self._stream is not None and not _in_host_memory(source):
            self._stream.copy(target, flat)
        else:
            target.copy_(flat)

    def end(self) -> Callable[[], None]:
        """All copies of a save have begun: returns what blocks until they are done. The device's own work waits for them, this host not."""
        if self._stream is None:
            return _done
        mark = self._stream.mark()
        mark.hold()
        return mark.wait


class CudaCopyStream:
    """A side stream of a CUDA device, into pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pinned: torch.Tensor | None = None

    def follow(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if source.device != self._stream.device:
            target.copy_(source)
            return
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
        source.record_stream(self._stream)

    def mark(self) -> Mark:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return _CudaMark(event, self._device)

    def pin(self, memory: torch.Tensor) -> None:
        """Memory that the driver will not pin is copied to all the same, more slowly."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        if self._pinned is not None:
            runtime.cudaHostUnregister(self._pinned.data_ptr())
        refused = int(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0))
        self._pinned = None if refused else memory
        if refused:  # torch checks the last error at its next launch, which would be training's: this one takes it
            with suppress(RuntimeError):
                torch.zeros(1, device=self._device)


class _CudaMark:
    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event = event
        self._device = device

    def wait(self) -> None:
        self._event.synchronize()

    def hold(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._event)


def copier_for(optimizers: Sequence[object]) -> Copier:
    """The copier for the device of what these optimizers train."""
    ours = [optimizer for optimizer in optimizers if isinstance(optimizer, torch.optim.Optimizer)]
    devices = {p.device for optimizer in ours for group in optimizer.param_groups for p in group["params"] if p.is_cuda}
    return Copier(CudaCopyStream(devices.pop())) if len(devices) == 1 else Copier()


def _in_host_memory(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _done() -> None:
    """Nothing to wait for."""
