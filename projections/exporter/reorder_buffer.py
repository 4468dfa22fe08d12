"""Puts events of different topics in the order of their times, as far as they come close to each other. Pure.

Holds: what is taken is ordered by time; at most MAX_WAITING wait; an offset counts as done only when all before it in its partition are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainhouse.projections.exporter.job_state import Seen

MAX_WAITING = 20_000
Place = tuple[str, int]


@dataclass(frozen=True)
class Waiting:
    """An event and where it stood."""

    seen: Seen
    place: Place
    offset: int


class Settling:
    """Events that wait for earlier ones of other partitions."""

    def __init__(self, settle_ms: int, starts: Mapping[Place, int] | None = None) -> None:
        self._settle_ms = settle_ms
        self._waiting: list[Waiting] = []
        self._next: dict[Place, int] = dict(starts or {})

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, place: Place, offset: int, seen: Iterable[Seen]) -> None:
        """A record was read; `seen`: the events in it, in their order."""
        self._next[place] = offset + 1
        self._waiting += [Waiting(each, place, offset) for each in seen]

    def take(self, now_ms: int) -> list[Seen]:
        """The events that are old enough, and the oldest ones beyond the bound; in order of time."""
        self._waiting.sort(key=lambda w: (w.seen.at_ms, w.place, w.offset))
        count = max(len(self._waiting) - MAX_WAITING, 0)
        while count < len(self._waiting) and self._waiting[count].seen.at_ms <= now_ms - self._settle_ms:
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return [w.seen for w in taken]

    def done(self) -> dict[Place, int]:
        """For each partition the offset to go on from, once everything taken so far is told."""
        done = dict(self._next)
        for waiting in self._waiting:
            done[waiting.place] = min(done[waiting.place], waiting.offset)
        return done
