"""Limit of a project's waiting jobs in a pool, checked before it submits.

Holds: what waits is read from the projections, at most once a second; while they do not answer, what was read last counts. A job that is
there already is no new one: a request that is sent again is answered as before. The scheduler judges each job when it comes: what slips
past here is REJECTED there.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import structlog

from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.errors import ProblemError, SqlRefusedError, SqlUnavailableError
from trainhouse.gateway.queries.sql_reader import SqlReader

log = structlog.get_logger(__name__)
FRESH_S = 1.0
RETRY_AFTER_S = 10
_SQL = "SELECT project, pool, count() AS jobs FROM job_status WHERE source = 'scheduled' AND state = 'PENDING' GROUP BY project, pool"
_JOB = "SELECT job_id FROM job_status WHERE job_id = {job_id:String} AND project = {project:String} LIMIT 1"


@dataclass
class Queued:
    """Waiting jobs of each project in each pool, as they were read last."""

    reader: SqlReader
    book: ProjectBook
    _jobs: dict[tuple[str, str], int] = field(default_factory=dict)
    _read_s: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def needs_room(self, project: str, pool: str, job_id: str) -> None:
        """Raises ProblemError 429 where as many jobs of the project wait in the pool as may, and this one is new."""
        rule = self.book.rule(project)
        most = rule.limits.queued if rule else None
        if most is None:
            return
        await self._refresh()
        now = self._jobs.get((project, pool), 0)
        if now >= most and not await self._is_there(project, job_id):
            raise ProblemError(
                429,
                "Too many waiting jobs",
                f"project {project} has {now} waiting jobs in pool {pool}, and its limits.queued is {most}: submit again when some have "
                "started, cancel some, or ask an operator for more",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    async def _is_there(self, project: str, job_id: str) -> bool:
        """Returns whether the project has this job; another's jobs are not told of."""
        try:
            return await self.reader.one(_JOB, {"job_id": job_id, "project": project}) is not None
        except (SqlUnavailableError, SqlRefusedError):
            return False

    async def _refresh(self) -> None:
        async with self._lock:
            if time.monotonic() - self._read_s < FRESH_S:
                return
            try:
                self._jobs = {(row["project"], row["pool"]): int(row["jobs"]) for row in await self.reader.rows(_SQL)}
            except (SqlUnavailableError, SqlRefusedError) as error:
                log.warning("how many jobs of projects wait is not known; what was read last counts", error=str(error))
            self._read_s = time.monotonic()
