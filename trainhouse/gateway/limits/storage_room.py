"""Limit of a project's space in the object store, checked before its files and code are taken, and before it submits.

Holds: what it has is read from the projections, at most every few seconds; while they do not answer, what was read last counts. A running
job's checkpoints are never refused: losing what it computed costs more than the space; its project is asked to make room before the next.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

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
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def needs_room(self, *projects: str, more_bytes: int = 0) -> None:
        """Raises ProblemError 429 where each of these projects has more than it may, or would have with `more_bytes`."""
        limits = {name: limit for name in projects if (limit := self._limit(name)) is not None}
        if not projects or len(limits) < len(projects):
            return
        await self._refresh()
        refusals = [storage_refusal(name, self._bytes.get(name, 0), limits[name], more_bytes) for name in projects]
        if all(refusals):
            why = f"{refusals[0]}. What runs goes on and is saved"
            raise ProblemError(429, "Storage is used up", why, headers={"Retry-After": str(RETRY_AFTER_S)})

    def _limit(self, name: str) -> float | None:
        rule = self.book.rule(name)
        return rule.limits.storage_gib if rule else None

    async def _refresh(self) -> None:
        async with self._lock:
            if time.monotonic() - self._read_s < FRESH_S:
                return
            try:
                self._bytes = {row["project"]: int(row["total_bytes"]) for row in await self.reader.rows(_SQL)}
            except (SqlUnavailableError, SqlRefusedError) as error:
                log.warning("what projects have in the object store is not known; what was read last counts", error=str(error))
            self._read_s = time.monotonic()
