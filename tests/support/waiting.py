"""Waiting in tests: by condition, with a limit, and with what is seen when it does not come."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(found: Callable[[], T | None], told: str | Callable[[], object] = "", timeout_s: float = 150.0, every_s: float = 0.1) -> T:
    """The first true answer of `found`; blocks. Fails after `timeout_s` with `told`: what was waited for, or what is there
    instead. It looks `every_s`, which bounds how late it is."""
    deadline = time.monotonic() + timeout_s
    while not (answer := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {told() if callable(told) else told}")
        time.sleep(every_s)
    return answer
