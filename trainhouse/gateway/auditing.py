"""Refusals as events of the audit, at a bounded rate: the first of its kind at once, those that repeat it counted.

Holds: pure. No refusal is left out of a count; a flood of different ones beyond the bounds is counted together, by status alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainhouse.events import AccessRefused

WINDOW_MS = 10_000
MINUTE_MS = 60_000
MAX_KINDS = 1000
TOGETHER = "many different ones, counted together"


@dataclass(frozen=True)
class Refusal:
    """What tells refusals apart."""

    status: int
    action: str = ""
    sub: str = ""
    token_id: str = ""
    address: str = ""


@dataclass(frozen=True)
class _Counted:
    since_ms: int
    count: int
    target: str
    reason: str


class RefusalBook:
    """What was refused and is not told yet. `per_minute`: at most so many events a minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._counted: dict[Refusal, _Counted] = {}
        self._minute_ms = 0
        self._told = 0

    def note(self, refusal: Refusal, target: str, reason: str, now_ms: int) -> AccessRefused | None:
        """Takes a refusal in; its event, if it is to be told at once."""
        known = self._counted.get(refusal)
        if known is not None:
            self._counted[refusal] = replace(known, count=known.count + 1)
            return None
        if len(self._counted) >= MAX_KINDS:
            together = Refusal(refusal.status)
            known = self._counted.get(together, _Counted(now_ms, 0, "", TOGETHER))
            self._counted[together] = replace(known, count=known.count + 1)
            return None
        if not self._may_tell(now_ms):
            self._counted[refusal] = _Counted(now_ms, 1, target, reason)
            return None
        self._counted[refusal] = _Counted(now_ms, 0, target, reason)
        return _event(refusal, _Counted(now_ms, 1, target, reason), now_ms)

    def due(self, now_ms: int) -> list[AccessRefused]:
        """Events of what was counted for long enough; as many as may be told now, the rest later."""
        told = []
        for refusal, counted in list(self._counted.items()):
            if now_ms - counted.since_ms < WINDOW_MS:
                continue
            if counted.count == 0:
                del self._counted[refusal]
            elif self._may_tell(now_ms):
                told.append(_event(refusal, counted, now_ms))
                del self._counted[refusal]
        return told

    def _may_tell(self, now_ms: int) -> bool:
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._minute_ms, self._told = now_ms, 0
        if self._told >= self._per_minute:
            return False
        self._told += 1
        return True


def _event(refusal: Refusal, counted: _Counted, now_ms: int) -> AccessRefused:
    return AccessRefused(
        at_ms=now_ms,
        since_ms=counted.since_ms,
        count=counted.count,
        status=refusal.status,
        action=refusal.action[:256],
        target=counted.target[:256],
        sub=refusal.sub[:128],
        token_id=refusal.token_id[:128],
        address=refusal.address[:64],
        reason=counted.reason[:1024],
    )
