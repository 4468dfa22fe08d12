"""Filter of a listing of jobs.

Holds: pure; the same filter means the same for rows in memory, for SQL and for the gateway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class JobFilter:
    """Filter of a listing of jobs; None and () keep all. Times are of submission."""

    user: str | None = None
    team: str | None = None
    project: str | None = None
    pool: str | None = None
    states: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    # `key=value`, or `key` with any value; all of them count. Rows have no tags: the tables and the gateway filter by them.
    tags: tuple[str, ...] = ()

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row of names and values passes."""
        for name in ("user", "team", "project", "pool"):
            wanted = getattr(self, name)
            if wanted is not None and row.get(name) != wanted:
                return False
        if self.states and row.get("state") not in self.states:
            return False
        at = row.get("submitted_at_ms") or row.get("updated_at_ms") or 0
        return (self.since_ms is None or at >= self.since_ms) and (self.until_ms is None or at < self.until_ms)
