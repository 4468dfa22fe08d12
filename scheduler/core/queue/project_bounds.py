"""How many jobs of a project may run, and wait, in each pool at once; and how many run.

Holds: what was said of a project last counts; one of which nothing was said is as "*" says, counted by itself; no project means no bound.
Never: decides who starts.
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
        """Of what was said of a project last; 0: nothing was."""
        known = self._bounds.get(project)
        return known.version if known is not None else 0

    def of(self, project: str) -> Bound | None:
        """What holds for a project."""
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
        """How many jobs of a project have devices of a pool."""
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
