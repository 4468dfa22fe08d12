"""Accesses that were let in as events of the audit, at a bounded rate: the first of its kind at once, those that repeat it counted.

Holds: pure. Alike are accesses of one asker, address, route and target: within WINDOW_MS they are one event with a count, and the counts of
all events add up to the accesses. Beyond the bounds different ones are counted together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainhouse.events import AccessEnded, AccessGranted
from trainhouse.events.model.audit_texts import cut
from trainhouse.events.runtime.counts import TOGETHER, Counts

MAX_KINDS = 10_000


@dataclass(frozen=True)
class Grant:
    """Kind of a granted access."""

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


class GrantBook:
    """Granted accesses that are not published yet. `per_minute`: at most so many events a minute. A kind that goes on stays known."""

    def __init__(self, per_minute: int) -> None:
        self._counts: Counts[Grant, None] = Counts(per_minute, MAX_KINDS, stays=True)

    @property
    def full(self) -> bool:
        """True if one of a new kind would be counted together with others."""
        return self._counts.full

    def note(self, grant: Grant, size_bytes: int, now_ms: int) -> AccessGranted | None:
        """Takes an access in; its event, if it is to be told at once."""
        if grant not in self._counts and self.full:
            grant = Grant(grant.access, reason=TOGETHER)
        return event_of(grant, now_ms, now_ms, 1, size_bytes) if self._counts.add(grant, None, now_ms, size_bytes) else None

    def due(self, now_ms: int) -> list[AccessGranted]:
        """Events of what was counted for long enough; as many as may be told now, the rest later."""
        return [event_of(grant, now_ms, each.since_ms, each.count, each.size_bytes) for grant, each in self._counts.due(now_ms)]


def event_of(grant: Grant, at_ms: int, since_ms: int, count: int, size_bytes: int = 0, **more: Any) -> AccessGranted:
    """The event of accesses that were let in."""
    session = cut(session_id=grant.session_id, reason=grant.reason)
    fields = {**_access_fields(grant), **session, "text": grant.text, **more}
    return AccessGranted(at_ms=at_ms, since_ms=since_ms, count=count, size_bytes=size_bytes, **fields)


def end_of(grant: Grant, at_ms: int, access_id: str, status: int, **more: Any) -> AccessEnded:
    """The event of the end of an access."""
    return AccessEnded(at_ms=at_ms, access_id=access_id, status=status, **_access_fields(grant), **more)


def _access_fields(grant: Grant) -> dict[str, Any]:
    texts = cut(action=grant.action, target=grant.target, sub=grant.sub, token_id=grant.token_id, address=grant.address)
    return {"access": grant.access, **texts}
