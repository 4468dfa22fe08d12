"""Accesses that were let in as events of the audit, at a bounded rate: the first of its kind at once, those that repeat it counted.

Holds: pure. Alike are accesses of one asker, address, route and target: within WINDOW_MS they are one event with a count, and the counts of
all events add up to the accesses. Beyond the bounds different ones are counted together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trainhouse.events import AccessGranted
from trainhouse.gateway.auditing import MINUTE_MS, TOGETHER, WINDOW_MS

MAX_KINDS = 10_000


@dataclass(frozen=True)
class Grant:
    """What tells accesses apart."""

    access: str
    action: str = ""
    target: str = ""
    sub: str = ""
    token_id: str = ""
    session_id: str = ""
    address: str = ""
    reason: str = ""
    # All that it names, where that is more than a target holds.
    text: str = ""


@dataclass(frozen=True)
class _Counted:
    since_ms: int
    count: int = 0
    size_bytes: int = 0


class GrantBook:
    """What was let in and is not told yet. `per_minute`: at most so many events a minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._counted: dict[Grant, _Counted] = {}
        self._minute_ms = 0
        self._told = 0

    @property
    def full(self) -> bool:
        """Whether one of a new kind would be counted together with others."""
        return len(self._counted) >= MAX_KINDS

    def note(self, grant: Grant, size_bytes: int, now_ms: int) -> AccessGranted | None:
        """Takes an access in; its event, if it is to be told at once."""
        if grant not in self._counted and self.full:
            grant = Grant(grant.access, reason=TOGETHER)
        known = self._counted.get(grant)
        if known is None and self._may_tell(now_ms):
            self._counted[grant] = _Counted(now_ms)
            return event_of(grant, now_ms, now_ms, 1, size_bytes)
        known = known or _Counted(now_ms)
        self._counted[grant] = replace(known, count=known.count + 1, size_bytes=known.size_bytes + size_bytes)
        return None

    def due(self, now_ms: int) -> list[AccessGranted]:
        """Events of what was counted for long enough; as many as may be told now, the rest later. One that goes on stays known."""
        told = []
        for grant, counted in list(self._counted.items()):
            if now_ms - counted.since_ms < WINDOW_MS:
                continue
            if counted.count == 0:
                del self._counted[grant]
            elif self._may_tell(now_ms):
                told.append(event_of(grant, now_ms, counted.since_ms, counted.count, counted.size_bytes))
                self._counted[grant] = _Counted(now_ms)
        return told

    def _may_tell(self, now_ms: int) -> bool:
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._minute_ms, self._told = now_ms, 0
        if self._told >= self._per_minute:
            return False
        self._told += 1
        return True


def event_of(grant: Grant, at_ms: int, since_ms: int, count: int, size_bytes: int = 0, **more: Any) -> AccessGranted:
    """The event; what callers wrote is cut to its bounds."""
    return AccessGranted(
        at_ms=at_ms,
        since_ms=since_ms,
        count=count,
        access=grant.access,
        action=grant.action[:256],
        target=grant.target[:256],
        sub=grant.sub[:128],
        token_id=grant.token_id[:128],
        session_id=grant.session_id[:128],
        address=grant.address[:64],
        reason=grant.reason[:1024],
        size_bytes=size_bytes,
        **{"text": grant.text, **more},
    )
