"""Work time of a step without waits for other ranks: from the step's start to the end of the model's forward pass.

A gang moves at the pace of its slowest rank, so step times are alike on all; its own work tells which rank that is. Backward passes and
optimizers wait for the others in collectives, so they are left out; a wrapper's own work before its module's (DDP sends buffers there) too.
Loading data is in it, where the program does it before the forward pass, or says `data_wait` after it.

Holds: on a device the times are those of its own stream, by events that are read when they are done, later; nothing waits for them.
Steps with an announced phase, and forward passes outside of training, do not count. A compiled or captured model is not measured.
Never: changes what the model computes, or is saved or copied with it.
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

SMOOTHING = 0.2
MAX_UNREAD = 8


class Clock(Protocol):
    """Marks moments, and tells the time between two of them once it is known."""

    def mark(self) -> Any: ...

    def between_ms(self, one: Any, other: Any) -> float | None: ...


class HostClock:
    """This process's time."""

    def mark(self) -> float:
        """Now."""
        return time.perf_counter()

    def between_ms(self, one: float, other: float) -> float | None:
        """Known at once."""
        return (other - one) * 1000


class StreamClock:
    """The time of the device's current stream."""

    def mark(self) -> torch.cuda.Event | None:
        """Records an event for when the stream comes to this point; None while the stream is being captured."""
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between_ms(self, one: torch.cuda.Event, other: torch.cuda.Event) -> float | None:
        """None as long as the device has not come to the second."""
        done = other.query()  # type: ignore[no-untyped-call]
        return float(one.elapsed_time(other)) if done else None


class Step:
    """The marks of one step: begin, the wrapper's forward, and each forward of the module itself."""

    __slots__ = ("begun", "data_wait_after_s", "data_wait_s", "entered", "passes")

    def __init__(self, begun: Any) -> None:
        self.begun = begun
        self.entered: Any = None
        self.passes: list[tuple[Any, Any]] = []
        self.data_wait_s = self.data_wait_after_s = 0.0

    def work_ms(self, clock: Clock) -> float | None:
        """None if it is not known yet."""
        parts = [(self.begun, self.entered), *self.passes]
        found = [clock.between_ms(one, other) for one, other in reversed(parts)]
        times = [ms for ms in found if ms is not None]
        return sum(times) + self.data_wait_after_s * 1000 if len(times) == len(found) else None


class WorkTime:
    """Measures one model. All calls come from the training thread."""

    def __init__(self, data_wait_s: Callable[[], float] = lambda: 0.0) -> None:
        """`data_wait_s`: the total of this attempt so far."""
        self.ms: float | None = None
        self._data_wait_s = data_wait_s
        self._clock: Clock | None = None
        self._step: Step | None = None
        self._entering: Any = None
        self._inside: Any = None
        self._unread: deque[Step] = deque()
        self._warm = False

    def watch(self, model: torch.nn.Module | None) -> None:
        """Hook into the model's forward pass. Call it once; a model that cannot be hooked is not measured."""
        if model is None or isinstance(model, torch.jit.ScriptModule):
            return
        first = next(model.parameters(), None)
        self._clock = StreamClock() if first is not None and first.is_cuda else HostClock()
        inner = inside_of(model)
        if inner is not model:
            model.register_forward_pre_hook(Hook(self._enter))
        inner.register_forward_pre_hook(Hook(self._open))
        inner.register_forward_hook(Hook(self._close))

    def begin(self) -> None:
        """A step begins."""
        self._entering = self._inside = None
        mark = self._clock.mark() if self._clock is not None else None
        self._step = None if mark is None else Step(mark)

    def end(self, undisturbed: bool = True) -> None:
        """It ends; without `undisturbed` it does not count. Takes over what has become known of earlier steps."""
        step, self._step = self._step, None
        if step is None or self._clock is None:
            return
        if undisturbed and step.entered is not None and step.passes and len(self._unread) < MAX_UNREAD:
            if isinstance(self._clock, HostClock):
                step.data_wait_after_s = self._data_wait_s() - step.data_wait_s
            self._unread.append(step)
        try:
            self._read(self._clock)
        except RuntimeError:  # the device is in an error that the program will meet by itself
            self._clock = None

    def _read(self, clock: Clock) -> None:
        while self._unread:
            found = self._unread[0].work_ms(clock)
            if found is None:
                return
            self._unread.popleft()
            if not self._warm:
                self._warm = True  # the first one compiles, allocates and fills caches
            else:
                self.ms = found if self.ms is None else self.ms + SMOOTHING * (found - self.ms)

    def _enter(self, module: torch.nn.Module) -> None:
        if self._step is not None and module.training and self._clock is not None:
            self._entering = self._clock.mark()

    def _open(self, module: torch.nn.Module) -> None:
        if self._step is None or self._clock is None or not module.training or self._inside is not None:
            return
        self._inside = self._clock.mark()
        if self._step.entered is None:
            self._step.entered = self._entering or self._inside
            self._step.data_wait_s = self._data_wait_s()

    def _close(self, module: torch.nn.Module) -> None:
        if self._step is None or self._clock is None or self._inside is None:
            return
        begun, self._inside = self._inside, None
        ended = self._clock.mark()
        if ended is not None:
            self._step.passes.append((begun, ended))


class Hook:
    """A hook that stays behind when its module is copied or pickled, and that a compiler does not see."""

    def __init__(self, call: Any = None) -> None:
        self._call = call

    def __call__(self, module: torch.nn.Module, *values: Any) -> None:
        if self._call is not None and not torch.compiler.is_compiling():
            self._pass_on(module, values)

    def _pass_on(self, module: torch.nn.Module, values: tuple[Any, ...]) -> None:
        self._call(module)

    def __deepcopy__(self, memo: Any) -> "Hook":
        return Hook()

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, ()


def inside_of(model: torch.nn.Module) -> torch.nn.Module:
    """The module that a wrapper of torch.distributed wraps, or the model itself."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # costly to import, and there is no such model without it
    wrappers = (DistributedDataParallel, *([fsdp.FullyShardedDataParallel] if fsdp is not None else []))
    inner = getattr(model, "module", None) if isinstance(model, wrappers) else None
    return inner if isinstance(inner, torch.nn.Module) else model
