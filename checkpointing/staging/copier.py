"""Copies of tensors into host memory, at once or beside the device's work.

Holds: what is copied is the value at the call of `copy`, whatever training does to the tensor afterwards. A tensor of host memory is copied
before `copy` returns. A device's tensors are copied beside the host's work: what training gives its device after `end` begins after the
copies, so that nothing can change them first, be it a step, a clamp, a swap of averages or a replayed graph.
Never: allocates host memory for a contiguous tensor.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch

_ALREADY_REGISTERED = 712
"""cudaErrorHostMemoryAlreadyRegistered."""


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
        if not source.numel():
            return
        rows = source.detach().resolve_conj().resolve_neg().contiguous()
        flat = rows.reshape(-1).view(torch.uint8)
        if self._stream is None or _in_host_memory(rows):
            target.copy_(flat)
            return
        if rows.data_ptr() != source.data_ptr():  # the device may not have written these rows yet
            self._stream.follow()
        self._stream.copy(target, flat)

    def end(self) -> Callable[[], None]:
        """All copies of a save have begun: returns what blocks until they are done. The device's own work waits for them, this host not."""
        if self._stream is None:
            return _done
        mark = self._stream.mark()
        mark.hold()
        return mark.wait


class CudaCopyStream:
    """A side stream of a CUDA device, into pinned memory.

    Holds: memory is unpinned before it is unmapped. The driver would write to its pages all the same, also for a later mapping at the same
    address, which would then have none of the values.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._unpin: Callable[[], object] = _done
        self._by_host = False

    def follow(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if self._by_host:
            target.copy_(source.cpu())
            return
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
        self._unpin()
        refused = self._register(memory)
        if refused == _ALREADY_REGISTERED:  # of an earlier mapping that somebody else pinned and never unpinned
            _unregister(memory)
            refused = self._register(memory)
        # Where that was a part of a larger one the driver still takes these addresses for other pages: it must not write to them.
        self._by_host = refused == _ALREADY_REGISTERED
        if refused:
            self._unpin = _done
            return
        # The memory stays mapped as long as it is pinned, also where the arena or this stream is gone first.
        unpin = weakref.finalize(self, _unregister, memory)
        unpin.atexit = False  # the driver may be gone by then, and the process's memory goes anyway
        self._unpin = unpin

    def _register(self, memory: torch.Tensor) -> int:
        """The driver's code: 0 if the memory is pinned now."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        return _noted(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0))


def _unregister(memory: torch.Tensor) -> None:
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    _noted(runtime.cudaHostUnregister(memory.data_ptr()))


def _noted(answer: Any) -> int:
    """The driver's code; torch checks its last error at its next launch, which would be training's: this launch takes it."""
    code = int(answer)
    if code:
        with suppress(RuntimeError):
            torch.zeros(1, device="cuda")
    return code


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
