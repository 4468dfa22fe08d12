"""Refusals as events of the audit, at a bounded rate: the first of its kind at once, those that repeat it counted.

Holds: pure. No refusal is left out of a count; a flood of different ones beyond the bounds is counted together, by status alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainhouse.events import AccessRefused
from trainhouse.events.model.audit_texts import cut
from trainhouse.events.runtime.counts import TOGETHER, Count, Counts

MAX_KINDS = 1000


@dataclass(frozen=True)
class Refusal:
    """Kind of a refusal."""

    status: int
    action: str = ""
    sub: str = ""
    token_id: str = ""
    address: str = ""


@dataclass(frozen=True)
class _First:
    target: str
    reason: str


class RefusalBook:
    """Refusals that are not published yet. `per_minute`: at most so many events a minute."""

    def __init__(self, per_minute: int) -> None:
        self._counts: Counts[Refusal, _First] = Counts(per_minute, MAX_KINDS, stays=False)

    def note(self, refusal: Refusal, target: str, reason: str, now_ms: int) -> AccessRefused | None:
        """Takes a refusal in; its event, if it is to be told at once."""
        if refusal not in self._counts and self._counts.full:
            self._counts.add(Refusal(refusal.status), _First("", TOGETHER), now_ms, at_once=False)
            return None
        first = _First(target, reason)
        return _event(refusal, Count(now_ms, first, 1), now_ms) if self._counts.add(refusal, first, now_ms) else None

    def due(self, now_ms: int) -> list[AccessRefused]:
        """Events of what was counted for long enough; as many as may be told now, the rest later."""
        return [_event(refusal, counted, now_ms) for refusal, counted in self._counts.due(now_ms)]


def _event(refusal: Refusal, counted: Count[_First], now_ms: int) -> AccessRefused:
    return AccessRefused(
        at_ms=now_ms,
        since_ms=counted.since_ms,
        count=counted.count,
        status=refusal.status,
        **cut(action=refusal.action, target=counted.first.target, sub=refusal.sub, token_id=refusal.token_id),
        **cut(address=refusal.address, reason=counted.first.reason),
    )
