"""Limit of a project's space in the object store, checked before its files and code are taken, and before it submits.

Holds: what it has is read from the projections, at most every few seconds; while they do not answer, what was read last counts. Where a
file comes, those that were stored before and that nothing names yet count too, and those that are being sent at this gateway. A listing of
one project's files holds up no other project. A running job's checkpoints are never refused: losing what
it computed costs more than the space; its project is asked to make room before the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import structlog

from trainhouse.events.model.project import storage_refusal
from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.errors import ProblemError, SqlRefusedError, SqlUnavailableError
from trainhouse.gateway.queries.sql_reader import SqlReader

log = structlog.get_logger(__name__)
FRESH_S = 5.0
RETRY_AFTER_S = 60
_SQL = "SELECT project, total_bytes FROM project_storage"


@dataclass
class Storage:
    """Storage of each project, as it was read last."""

    reader: SqlReader
    book: ProjectBook
    _bytes: dict[str, int] = field(default_factory=dict)
    _read_s: float = float("-inf")
    _unnamed: dict[str, tuple[float, int]] = field(default_factory=dict)
    """By project: when it was read last, and bytes."""
    _reserved: dict[str, int] = field(default_factory=dict)
    """By project: bytes of files that are being sent."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listings: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """By project, while somebody uses it: held while its files are listed."""

    async def needs_room(self, *projects: str) -> None:
        """Raises ProblemError 429 where each of these projects has more than it may."""
        limits = {name: limit for name in projects if (limit := self._limit(name)) is not None}
        if not projects or len(limits) < len(projects):
            return
        await self._refresh()
        self._refuse(projects, limits)

    async def needs_room_beside(self, project: str, used_bytes: Callable[[], Awaitable[int]], of_what: str) -> None:
        """Raises ProblemError 429 where a project has more than it may, with bytes that the projections do not count. `used_bytes`: called
        only where the project has a limit; `of_what`: says of what these are, for a person."""
        if (limit := self._limit(project)) is None:
            return
        await self._refresh()
        used = await used_bytes()
        self._refuse((project,), {project: limit}, used, f"; {used} bytes of these are {of_what}")

    @asynccontextmanager
    async def room_for_file(
        self, project: str, declared_bytes: int, unnamed_bytes: Callable[[], Awaitable[int]]
    ) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        """Keeps room for a file while it is sent and stored. Yields a function that takes its size once that is known.

        Both raise ProblemError 429 where the project has no room for it, with the files that nothing names yet and those that others send.
        `declared_bytes`: 0 where its sender declared none. `unnamed_bytes`: reads from the store; called at most every few seconds.
        """
        held_bytes = 0

        async def hold(size_bytes: int) -> None:
            nonlocal held_bytes
            if (limit := self._limit(project)) is None:
                return
            await self._list(project, unnamed_bytes)
            await self._refresh()
            # From here on nothing else runs until the bytes are reserved.
            waiting = self._unnamed[project][1] if project in self._unnamed else 0
            sending = self._reserved.get(project, 0) - held_bytes
            remark = (
                f"; {waiting} bytes of these are files that nothing names yet: make a version of them, or wait a day" if waiting else ""
            )
            remark += f"; {sending} bytes of these are being sent" if sending else ""
            self._refuse((project,), {project: limit}, waiting + sending + size_bytes, remark)
            self._reserved[project], held_bytes = sending + size_bytes, size_bytes

        try:
            await hold(declared_bytes)
            yield hold
        finally:
            left = self._reserved.pop(project, 0) - held_bytes
            if left:
                self._reserved[project] = left

    def stored_unnamed(self, project: str, size_bytes: int) -> None:
        """Counts a file that was stored just now, until the store is read again."""
        if project in self._unnamed:
            read_s, waiting = self._unnamed[project]
            self._unnamed[project] = read_s, waiting + size_bytes

    def _limit(self, name: str) -> float | None:
        rule = self.book.rule(name)
        return rule.limits.storage_gib if rule else None

    def _refuse(self, projects: Sequence[str], limits: dict[str, float], more_bytes: int = 0, of_these: str = "") -> None:
        """Raises ProblemError 429 where each of these projects has more than it may, or would have with `more_bytes`; `of_these`: a remark
        about those, for a person."""
        refusals = [storage_refusal(name, self._bytes.get(name, 0), limits[name], more_bytes) for name in projects]
        if all(refusals):
            why = f"{refusals[0]}{of_these}. What runs goes on and is saved"
            raise ProblemError(429, "Storage is used up", why, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def _list(self, project: str, unnamed_bytes: Callable[[], Awaitable[int]]) -> None:
        listing = self._listings.setdefault(project, asyncio.Lock())
        async with listing:
            read_s, before = self._unnamed.setdefault(project, (float("-inf"), 0))
            if time.monotonic() - read_s < FRESH_S:
                return
            read_s, waiting = time.monotonic(), await unnamed_bytes()
            # What was stored meanwhile may have come too late for the listing.
            stored = self._unnamed[project][1] - before
            self._unnamed[project] = read_s, waiting + stored
            self._unnamed = {name: one for name, one in self._unnamed.items() if read_s - one[0] < FRESH_S or name in self._listings}

    async def _refresh(self) -> None:
        async with self._lock:
            if time.monotonic() - self._read_s < FRESH_S:
                return
            try:
                self._bytes = {row["project"]: int(row["total_bytes"]) for row in await self.reader.rows(_SQL)}
            except (SqlUnavailableError, SqlRefusedError) as error:
                log.warning("what projects have in the object store is not known; what was read last counts", error=str(error))
            self._read_s = time.monotonic()
