"""Counts of what repeats, by kind: which of it is told at once, and which later with a count, at a bounded rate.

Holds: pure. What is counted of a kind within a window is told once; all counts together are all that came. A clock that is set back
ends the window and the minute at hand: it keeps nothing from being told.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

WINDOW_MS = 10_000
MINUTE_MS = 60_000
TOGETHER = "many different ones, counted together"

Kind = TypeVar("Kind", bound=Hashable)
First = TypeVar("First")


def within(span_ms: int, since_ms: int, now_ms: int) -> bool:
    """Whether a span is not over yet; it is when the clock was set back behind its begin."""
    return 0 <= now_ms - since_ms < span_ms


class PerMinute:
    """Lets so many through in each minute. One thread at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._minute_ms = 0
        self._let = 0

    def may(self, now_ms: int) -> bool:
        """Whether one more goes through; then it is counted."""
        if not within(MINUTE_MS, self._minute_ms, now_ms):
            self._minute_ms, self._let = now_ms, 0
        if self._let >= self._most:
            return False
        self._let += 1
        return True


@dataclass(frozen=True)
class Count(Generic[First]):
    """Unpublished count of one kind. `first`: the content of its first event."""

    since_ms: int
    first: First
    count: int = 0
    size_bytes: int = 0


class Counts(Generic[Kind, First]):
    """Counts of all kinds. `per_minute`: the most that are published; `window_ms`: the window of one count; `stays`: a published kind
    stays known for another window."""

    def __init__(self, per_minute: int, max_kinds: int, *, stays: bool, window_ms: int = WINDOW_MS) -> None:
        self._rate = PerMinute(per_minute)
        self._max_kinds = max_kinds
        self._stays = stays
        self._window_ms = window_ms
        self._counted: dict[Kind, Count[First]] = {}

    @property
    def full(self) -> bool:
        """Whether there is no room for a new kind: it is to be counted together with others."""
        return len(self._counted) >= self._max_kinds

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._counted

    def add(self, kind: Kind, first: First, now_ms: int, size_bytes: int = 0, at_once: bool = True) -> bool:
        """Counts an event; returns whether to publish it now, by itself. `at_once` False: it is counted in any case."""
        known = self._counted.get(kind)
        if known is None and at_once and self._rate.may(now_ms):
            self._counted[kind] = Count(now_ms, first)
            return True
        known = known or Count(now_ms, first)
        self._counted[kind] = replace(known, count=known.count + 1, size_bytes=known.size_bytes + size_bytes)
        return False

    def due(self, now_ms: int) -> list[tuple[Kind, Count[First]]]:
        """Returns the counts whose window is over, within the rate limit; the rest stay for later calls."""
        due_counts = []
        for kind, counted in list(self._counted.items()):
            if within(self._window_ms, counted.since_ms, now_ms):
                continue
            if counted.count == 0:
                del self._counted[kind]
            elif self._rate.may(now_ms):
                due_counts.append((kind, counted))
                if self._stays:
                    self._counted[kind] = Count(now_ms, counted.first)
                else:
                    del self._counted[kind]
        return due_counts
