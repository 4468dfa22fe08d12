"""The program's own torch profilers: whether one is under way, and the moment before one starts.

A process has one profiler of torch: the start of a second cancels the first, whose export then ends the process.
Never: sees a profiler that does not start through `torch.autograd.profiler`.
"""

import functools
import gc
import os
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

_STARTS = ("_prepare_profiler", "_enable_profiler")


def under_way() -> bool:
    """Returns whether one is prepared or records, in any thread."""
    if torch.autograd._profiler_enabled() or profiler._is_profiler_enabled:  # type: ignore[attr-defined]
        return True
    prepared = (p for p in gc.get_objects() if type(p) is profiler.profile)  # a schedule's warmup is in no flag of torch's
    return any(p.entered and p.kineto_results is None for p in prepared)


def records() -> bool:
    """Returns whether one has started and not ended since."""
    return profiler._is_profiler_enabled


def watch(before_start: Callable[[], None]) -> Callable[[], None]:
    """Calls `before_start` in the thread that is about to start a profiler; returns the call that ends this."""
    pid, watching = os.getpid(), True

    def watched(start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if watching and os.getpid() == pid:
                before_start()
            return start(*args, **kwargs)

        return wrapped

    before = {name: getattr(profiler, name) for name in _STARTS}
    ours = {name: watched(start) for name, start in before.items()}
    for name, start in ours.items():
        setattr(profiler, name, start)

    def end() -> None:
        nonlocal watching
        watching = False
        for name, start in before.items():
            if getattr(profiler, name) is ours[name]:
                setattr(profiler, name, start)

    return end
