"""Guard of the figures: their first error turns them off for the rest of the attempt, and training goes on."""

import functools
import sys
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """State shared by all that measures in one rank."""

    def __init__(self) -> None:
        self.on = True

    def failed(self, error: Exception) -> None:
        """Turns the figures off, and reports it on standard error, once."""
        if self.on:
            self.on = False
            print(f"step figures are off, training goes on: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class _Guarded(Protocol):
    @property
    def guard(self) -> Guard: ...


S = TypeVar("S", bound=_Guarded)


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Makes a method that runs under its object's guard; it does nothing once the figures are off."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if not self.guard.on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.guard.failed(error)
            return None

    functools.update_wrapper(call, method)
    return call
