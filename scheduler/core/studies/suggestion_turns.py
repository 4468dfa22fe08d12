"""Turns of studies that wait for suggestions: between projects first, between the studies of one then. Pure.

Holds: start-time fair queueing (Goyal et al. 1996). What waits all the while gets as much time as any other, whatever one suggestion of it
takes; what has not waited has nothing saved up. Of equal ones the first that is asked for comes first. Only what was served lately is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainhouse.scheduler.core.studies.study_state import Wanted

K = TypeVar("K", bound=str)


@dataclass(slots=True)
class Turns(Generic[K]):
    """Turns of one level. `_now`: start of the turn that was given last; `_ends`: ends of turns that lie behind it."""

    _now: float = 0.0
    _ends: dict[K, float] = field(default_factory=dict)

    def next(self, waiting: Iterable[K]) -> K:
        """Returns the one whose turn it is, which begins with it."""
        chosen = min(waiting, key=lambda key: self._ends.get(key, self._now))
        self._now = max(self._now, self._ends.get(chosen, self._now))
        return chosen

    def took(self, key: K, seconds: float) -> None:
        """Ends a turn."""
        ends = self._ends | {key: max(self._ends.get(key, 0.0), self._now) + seconds}
        self._ends = {other: end for other, end in ends.items() if end > self._now}


@dataclass(slots=True)
class SuggestionTurns:
    """Turns of studies."""

    _projects: Turns[str] = field(default_factory=Turns)
    _studies: dict[str, Turns[str]] = field(default_factory=dict)

    def next(self, waiting: Sequence[Wanted]) -> Wanted | None:
        """Returns the trial that is suggested next; None: none waits."""
        if not waiting:
            return None
        project = self._projects.next(each.project for each in waiting)
        of_project = {each.study: each for each in waiting if each.project == project}
        return of_project[self._studies.setdefault(project, Turns()).next(of_project)]

    def took(self, each: Wanted, seconds: float) -> None:
        """Counts the time that a suggestion took."""
        self._projects.took(each.project, seconds)
        self._studies.setdefault(each.project, Turns()).took(each.study, seconds)

    def keep(self, projects: Iterable[str]) -> None:
        """Forgets the studies of all other projects."""
        self._studies = {project: self._studies[project] for project in self._studies.keys() & set(projects)}
