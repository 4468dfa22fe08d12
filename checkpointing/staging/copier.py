"""Copies of tensors into host memory, at once or beside the device's work.

Holds: what is copied is the value at the call of `copy`, whatever training does to the tensor afterwards. A tensor of host memory is copied
before `copy` returns. A device's tensors are copied beside the host's work: what training gives its device after `end` begins after the
copies, so that nothing can change them first, be it a step, a clamp, a swap of averages or a replayed graph.
Never: allocates host memory for a contiguous tensor.
"""

import ctypes
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

import torch

PIN_BYTES = 64 * 2**20
"""Pinned at once: the driver lets training's calls wait meanwhile."""
_ALREADY_REGISTERED = 712
"""cudaErrorHostMemoryAlreadyRegistered."""
_RELAXED = 2
"""cudaStreamCaptureModeRelaxed."""


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

    def pin(self, memory: torch.Tensor) -> Iterator[None]:
        """Pins host memory that is copied to from now on, instead of what was pinned before, a part at each step."""

    def may_pin_beside(self) -> bool:
        """Returns whether this thread may pin while training goes on in another one. It is this thread's from then on to pin."""


class Copier:
    """Copies for one rank. `stream`: None where the tensors are in host memory."""

    def __init__(self, stream: CopyStream | None = None) -> None:
        self._stream = stream
        self._pinned: Callable[[], torch.Tensor | None] = _no_memory
        self._pinning: Iterator[None] = iter(())

    def begin(self, memory: torch.Tensor) -> None:
        """A save begins that is staged in this memory; pins what is not pinned of it."""
        if self._stream is None:
            return
        for _ in self._pins(self._stream, memory):
            pass
        self._stream.follow()

    def prepare(self, memory: torch.Tensor) -> Iterator[None]:
        """Pins memory that saves will be staged in, a part at each step, in another thread than training's, which may leave it at any step.

        Where that would disturb training it does nothing: the first save pins then.
        """
        if self._stream is not None and self._stream.may_pin_beside():
            for _ in self._pins(self._stream, memory):  # not `yield from`, which would end it where this thread leaves it
                yield

    def _pins(self, stream: CopyStream, memory: torch.Tensor) -> Iterator[None]:
        if self._pinned() is not memory:
            self._pinned = weakref.ref(memory)
            self._pinning = stream.pin(memory)
        return self._pinning

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
    address, which would then have none of the values. No copy is to two parts that were pinned each by itself.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._unpin: Callable[[], object] = _done
        self._by_host = False
        self._begin = 0

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
            for begin, end in _cuts(target.data_ptr() - self._begin, target.numel()):
                target[begin:end].copy_(source[begin:end], non_blocking=True)
        source.record_stream(self._stream)

    def mark(self) -> Mark:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return _CudaMark(event, self._device)

    def pin(self, memory: torch.Tensor) -> Iterator[None]:
        """Memory that the driver will not pin is copied to all the same, more slowly."""
        self._unpin()
        self._begin, self._by_host = memory.data_ptr(), False
        addresses: list[int] = []
        # The memory stays mapped as long as it is pinned, also where the arena or this stream is gone first.
        unpin = weakref.finalize(self, _unregister, memory, addresses)
        unpin.atexit = False  # the driver may be gone by then, and the process's memory goes anyway
        self._unpin = unpin
        for begin, end in _cuts(0, memory.numel()):
            part = memory[begin:end]
            with self._on_device():
                refused = _register(part)
                if refused == _ALREADY_REGISTERED:  # of an earlier mapping that somebody else pinned and never unpinned
                    _unregister(part, [part.data_ptr()])
                    refused = _register(part)
            if refused:
                # Where that was a part of a larger one the driver still takes these addresses for other pages: it must not write to them.
                self._by_host = self._by_host or refused == _ALREADY_REGISTERED
                return
            addresses.append(part.data_ptr())
            yield

    def may_pin_beside(self) -> bool:
        """Unless the driver would take it for a part of a graph that training's thread may be capturing."""
        with self._on_device():
            return _relaxed()

    def _on_device(self) -> AbstractContextManager[object]:
        """A thread's own device is the first one until it says otherwise: it would get a context, and memory, there."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()


def _cuts(at: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of so many bytes that begin `at` bytes into memory, by the parts that it is pinned in."""
    begin = 0
    while begin < size_bytes:
        end = min(size_bytes, begin + PIN_BYTES - (at + begin) % PIN_BYTES)
        yield begin, end
        begin = end


def _relaxed() -> bool:
    """Lets this thread call what is not allowed while another captures a graph (cudaStreamCaptureModeGlobal); returns whether it may."""
    try:
        runtime = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}")  # torch's own, which is loaded
        return int(runtime.cudaThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))) == 0
    except (OSError, AttributeError):
        return False


def _register(memory: torch.Tensor) -> int:
    """Returns the driver's code: 0 if the memory is pinned now."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    return _noted(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0))


def _unregister(memory: torch.Tensor, addresses: list[int]) -> None:
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    for address in addresses:
        _noted(runtime.cudaHostUnregister(address))


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


def _no_memory() -> None:
    """Nothing is pinned."""


def _done() -> None:
    """Nothing to wait for."""
