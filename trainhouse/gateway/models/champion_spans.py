"""Spans in which versions of a model were champion, from the registry's decisions. Pure.

Holds: of a model at most one span is open; the newest `MOST_SPANS` of each are kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from trainhouse.events import ModelArchived, ModelPromoted, ModelRolledBack
from trainhouse.events.model.model_decisions import ModelDecision

MOST_SPANS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ChampionSpan:
    """Time in which a version was champion. `ended_ms` None: it is champion. `how`: promoted, or rolled back."""

    version: int
    semver: str
    began_ms: int
    ended_ms: int | None
    how: str
    by: str
    reason: str
    approvers: tuple[str, ...] = ()
    emergency: bool = False

    def as_row(self) -> dict[str, Any]:
        """As an answer has it."""
        return asdict(self)


class ChampionSpans:
    """Spans of one model, oldest first."""

    def __init__(self) -> None:
        self._spans: deque[ChampionSpan] = deque(maxlen=MOST_SPANS)

    def note(self, decision: ModelDecision) -> None:
        """Takes one decision; those that make no other version champion change nothing."""
        match decision:
            case ModelPromoted():
                self._begin(decision, "promoted", decision.approvers, decision.emergency)
            case ModelRolledBack():
                self._begin(decision, "rolled back")
            case ModelArchived() if self.current is not None and self.current.version == decision.version:
                self._end(decision.at_ms)

    @property
    def current(self) -> ChampionSpan | None:
        """The open span."""
        return self._spans[-1] if self._spans and self._spans[-1].ended_ms is None else None

    def newest_first(self) -> list[ChampionSpan]:
        """All of them."""
        return list(reversed(self._spans))

    def _begin(self, decision: ModelPromoted | ModelRolledBack, how: str, approvers: tuple[str, ...] = (), emergency: bool = False) -> None:
        self._end(decision.at_ms)
        about = (decision.version, decision.semver, decision.at_ms, None, how, decision.user, decision.reason)
        self._spans.append(ChampionSpan(*about, approvers, emergency))

    def _end(self, at_ms: int) -> None:
        current = self.current
        if current is not None:
            self._spans[-1] = replace(current, ended_ms=max(at_ms, current.began_ms))
