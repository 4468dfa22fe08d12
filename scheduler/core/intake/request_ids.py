"""The ids of requests that changed something which a later one may change back, and from when on they are whole.

Holds: a request that a producer sends again never counts again, however many came between: either its id is still known, or its own time is
not after that of one whose id was forgotten; then it cannot be told from a repeat, and is refused. A producer's repeat has the first one's
time. Those with the earliest times are forgotten first, of each project its own; of operators and the gateway, apart from projects.
"""

import hashlib
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from trainhouse.events.wire.envelope import Envelope

MOST_AHEAD_MS: Final = 2 * 86_400_000
"""How far ahead of journal time a request may say that it was made: beyond any clock that is a day off."""
MOST_OF_OPERATORS: Final = 65_536
MOST_OF_PROJECT: Final = 16_384
MOST_OF_PROJECTS: Final = 262_144


def request_digest(envelope: Envelope) -> bytes:
    """Hash of a request's source and id, by which it counts once."""
    return hashlib.blake2b(f"{envelope.source}\n{envelope.id}".encode(), digest_size=8).digest()


@dataclass(slots=True)
class Ids:
    """Request ids of one project, or of operators and the gateway. `floor_ms`: the latest time of a forgotten id."""

    floor_ms: int | None = None
    known: set[bytes] = field(default_factory=set)
    by_time: list[tuple[int, bytes]] = field(default_factory=list)

    def note(self, made_at_ms: int, digest: bytes) -> None:
        if digest not in self.known:
            self.known.add(digest)
            insort(self.by_time, (made_at_ms, digest))

    def forget(self) -> None:
        made_at_ms, digest = self.by_time.pop(0)
        self.known.remove(digest)
        self.floor_ms = made_at_ms if self.floor_ms is None else max(self.floor_ms, made_at_ms)

    def copy(self) -> "Ids":
        return Ids(self.floor_ms, set(self.known), list(self.by_time))


class AskedIds:
    """By project, None standing for operators and the gateway; a fork copies a project's before it changes them."""

    def __init__(self, of: dict[str | None, Ids] | None = None, shared: bool = False) -> None:
        self._of = {} if of is None else of
        self._own: set[str | None] | None = set() if shared else None
        self._of_projects = sum(len(ids.known) for project, ids in self._of.items() if project is not None)

    def fork(self) -> "AskedIds":
        """Another one to decide on; this one must not change meanwhile."""
        return AskedIds(dict(self._of), shared=True)

    def copy(self) -> "AskedIds":
        """Another one that keeps what is here now."""
        return AskedIds({project: ids.copy() for project, ids in self._of.items()})

    def knows(self, project: str | None, digest: bytes) -> bool:
        """Whether a request of this id counted."""
        ids = self._of.get(project)
        return ids is not None and digest in ids.known

    def too_old(self, project: str | None, made_at_ms: int) -> bool:
        """Whether ids of requests that were made later are forgotten already."""
        ids = self._of.get(project)
        return ids is not None and ids.floor_ms is not None and made_at_ms <= ids.floor_ms

    def why_untimely(self, made_at_ms: int, now_ms: int) -> str:
        """Returns why a request to operators' machines cannot count for the time at which it was made; empty: it can."""
        if made_at_ms > now_ms + MOST_AHEAD_MS:
            return "the request says that it was made more than two days ahead of now; set the sender's clock, and send it under a new id"
        if self.too_old(None, made_at_ms):
            return "so many requests were made since this one that it may have counted already; send it again under a new id"
        return ""

    def note(self, project: str | None, made_at_ms: int, digest: bytes) -> None:
        """Remembers a request that counted; forgets what is beyond the bounds."""
        ids = self._to_change(project)
        before = len(ids.known)
        ids.note(made_at_ms, digest)
        self._of_projects += len(ids.known) - before if project is not None else 0
        if len(ids.known) > (MOST_OF_OPERATORS if project is None else MOST_OF_PROJECT):
            self._forget(project, ids)
        if self._of_projects > MOST_OF_PROJECTS:
            # By name in the end: a state that was read back has them in another order.
            most = max((p for p in self._of if p is not None), key=lambda p: (len(self._of[p].known), p == project, p))
            self._forget(most, self._to_change(most))

    def _forget(self, project: str | None, ids: Ids) -> None:
        ids.forget()
        self._of_projects -= project is not None

    def _to_change(self, project: str | None) -> Ids:
        ids = self._of.get(project)
        if ids is None or (self._own is not None and project not in self._own):
            ids = self._of[project] = Ids() if ids is None else ids.copy()
            if self._own is not None:
                self._own.add(project)
        return ids

    def dump(self) -> list[Any]:
        """As JSON; empty where nothing was noted."""
        return [[project, ids.floor_ms, [[at, digest.hex()] for at, digest in ids.by_time]] for project, ids in self._sorted()]

    @classmethod
    def load(cls, dumped: list[Any]) -> "AskedIds":
        """Reads it back."""
        found: dict[str | None, Ids] = {}
        for project, floor_ms, ids in dumped:
            by_time = [(at, bytes.fromhex(digest)) for at, digest in ids]
            found[project] = Ids(floor_ms, {digest for _, digest in by_time}, by_time)
        return cls(found)

    def _sorted(self) -> Iterator[tuple[str | None, Ids]]:
        return iter(sorted(self._of.items(), key=lambda item: (item[0] is not None, item[0] or "")))
