"""Bounds on a project's running and waiting jobs in each pool, and the number of those that run.

Holds: the newest bound of a project counts; a project without any has that of "*", counted by itself; no project means no bound.
Never: decides which job starts.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trainhouse.events.model.project import EVERY_OTHER


class Bound(NamedTuple):
    """Of one project, as of a version of it. None: no bound."""

    version: int
    running: int | None
    queued: int | None


class ProjectBounds:
    """The bounds, and the jobs that have devices, by pool and project. `fork` costs a shallow copy."""

    __slots__ = ("_bounds", "_running")

    def __init__(self) -> None:
        self._bounds: dict[str, Bound] = {}
        self._running: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        """Whether anything was ever said of any project."""
        return bool(self._bounds)

    def put(self, project: str, bound: Bound) -> None:
        """From now on this counts; an older word changes nothing."""
        known = self._bounds.get(project)
        if known is None or known.version < bound.version:
            self._bounds[project] = bound

    def version(self, project: str) -> int:
        """Version of a project's newest bound; 0: it has none."""
        known = self._bounds.get(project)
        return known.version if known is not None else 0

    def of(self, project: str) -> Bound | None:
        """Returns the bound that applies to a project, or None."""
        return (self._bounds.get(project) or self._bounds.get(EVERY_OTHER)) if project else None

    def count(self, pool: str, project: str, sign: int) -> None:
        """A job gets devices, or with sign -1 has none any more."""
        key = (pool, project)
        now = self._running.get(key, 0) + sign
        if now:
            self._running[key] = now
        else:
            self._running.pop(key, None)

    def running(self, pool: str, project: str) -> int:
        """Returns the number of a project's jobs that have devices of a pool."""
        return self._running.get((pool, project), 0)

    def fork(self) -> "ProjectBounds":
        """A copy that shares no change."""
        twin = ProjectBounds()
        twin._bounds, twin._running = self._bounds.copy(), self._running.copy()
        return twin

    def rows(self) -> list[list[Any]]:
        """The bounds for a snapshot; how many run follows from the jobs."""
        return [[project, *self._bounds[project]] for project in sorted(self._bounds)]

    def restore(self, rows: Iterable[Sequence[Any]]) -> None:
        """The bounds of a snapshot."""
        for project, version, running, queued in rows:
            self.put(project, Bound(version, running, queued))
