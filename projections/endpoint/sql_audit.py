"""Audit of the SQL port: account, query and outcome.

Holds: a guest's question is told before it runs and when it ended. So is the first of a statement that other accounts ask (services ask the
same ones all the time); what repeats it within WINDOW_MS is counted, and the counts add up. Questions that fail are told each by itself, up
to FAILURES_PER_MINUTE. One thread only.
Never: a password, or what an answer held.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from trainhouse.events import AccessEnded, AccessGranted, AccessRefused, Event
from trainhouse.events.model.audit_texts import cut, kept_back, statement_text
from trainhouse.events.runtime.counts import TOGETHER, Count, Counts, PerMinute
from trainhouse.projections.endpoint.door import Account
from trainhouse.projections.endpoint.request import Query
from trainhouse.projections.errors import QueryRefusedError

WINDOW_MS = 600_000
MAX_KINDS = 10_000
MAX_REFUSED_KINDS = 1000
PER_MINUTE = 1200
REFUSALS_PER_MINUTE = 120
FAILURES_PER_MINUTE = 120
BUSY = 202
ACTION = "SQL port"
UNAUDITED = "this question cannot be written to the audit, which this Trainhouse requires: the brokers are away"


class Way(Protocol):
    """Sink of audit events."""

    def offer(self, event: Event) -> bool:
        """Sends an event without waiting. Returns whether it is kept."""

    @property
    def full(self) -> bool:
        """True if the next one would be lost."""

    def turn(self) -> None:
        """Sends queued events."""


class Nowhere:
    """No-op sink, for an endpoint without brokers."""

    full = False

    def offer(self, event: Event) -> bool:
        """Does nothing."""
        return True

    def turn(self) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class Asked:
    """One question under way. `access_id` empty: it is counted with others."""

    user: str
    address: str
    text: dict[str, str]
    kind: _Kind
    access_id: str = ""
    counted: bool = False


@dataclass(frozen=True)
class _Kind:
    user: str
    address: str
    statement: str


@dataclass(frozen=True)
class Ended:
    """Outcome of a query."""

    status: int
    rows: int | None = None
    size_bytes: int = 0
    reason: str = ""


class SqlAudit:
    """One endpoint's. `required`: what cannot be told is refused."""

    def __init__(self, way: Way, *, required: bool = False, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._way = way
        self._required = required
        self._clock_ms = clock_ms
        self._counts: Counts[_Kind, dict[str, str]] = Counts(PER_MINUTE, MAX_KINDS, stays=True, window_ms=WINDOW_MS)
        self._refusals: Counts[tuple[int, str, str], str] = Counts(REFUSALS_PER_MINUTE, MAX_REFUSED_KINDS, stays=False)
        self._failures = PerMinute(FAILURES_PER_MINUTE)

    def began(self, account: Account, address: str, query: Query) -> Asked:
        """A question that is about to run. Raises QueryRefusedError where it must be told and cannot be."""
        if self._required and self._way.full:
            raise QueryRefusedError(UNAUDITED, BUSY)
        text, now_ms = statement_text(query.sql, query.parameters or None), self._clock_ms()
        kind = _Kind(account.user, address, text["text"] if account.guest else statement_text(query.sql)["text"])
        asked = Asked(account.user, address, text, kind)
        if account.guest:
            return self._grant(asked, now_ms, "a guest's account", must=self._required)
        if kind in self._counts:
            return asked
        if self._counts.full:
            return Asked(account.user, address, text, _Kind(account.user, address, TOGETHER))
        if self._counts.add(kind, text, now_ms):
            return self._grant(asked, now_ms, "the stack's account", must=self._required)
        return Asked(account.user, address, text, kind, counted=True)

    def ended(self, asked: Asked, ended: Ended, took_s: float) -> None:
        """A question that was answered, refused or broken off."""
        now_ms = self._clock_ms()
        if not asked.access_id and not asked.counted and ended.status >= 400 and self._failures.may(now_ms):
            asked = self._grant(asked, now_ms, "it was asked before")
        if asked.access_id:
            about = {"rows": ended.rows, "size_bytes": ended.size_bytes, "took_ms": round(took_s * 1000), "status": ended.status}
            about |= cut(reason=kept_back(ended.reason))
            caller = cut(action=ACTION, sub=asked.user, address=asked.address)
            self._way.offer(AccessEnded(at_ms=now_ms, access_id=asked.access_id, access="sql", **caller, **about))
        elif not asked.counted:
            self._counts.add(asked.kind, asked.text, now_ms, ended.size_bytes, at_once=False)

    def refused(self, status: int, user: str, address: str, reason: str) -> None:
        """A request that was turned away before its statement was looked at."""
        now_ms, kind = self._clock_ms(), (status, user, address)
        if kind not in self._refusals and self._refusals.full:
            kind, reason = (status, "", ""), TOGETHER
        if self._refusals.add(kind, reason, now_ms):
            self._way.offer(_refusal(kind, Count(now_ms, reason, 1), now_ms))

    def turn(self) -> None:
        """Publishes the counts whose window is over; to be called about each second."""
        self._due(self._clock_ms())

    def close(self) -> None:
        """Publishes all remaining counts."""
        self._due(self._clock_ms() + WINDOW_MS)

    def _due(self, now_ms: int) -> None:
        for kind, counted in self._counts.due(now_ms):
            self._way.offer(_granted(kind, counted.first, "", now_ms, counted.since_ms, counted.count, counted.size_bytes, "asked again"))
        for refused, count in self._refusals.due(now_ms):
            self._way.offer(_refusal(refused, count, now_ms))
        self._way.turn()

    def _grant(self, asked: Asked, now_ms: int, why: str, *, must: bool = False) -> Asked:
        access_id = secrets.token_hex(8)
        kept = self._way.offer(_granted(asked.kind, asked.text, access_id, now_ms, now_ms, 1, 0, why))
        if must and not kept:
            raise QueryRefusedError(UNAUDITED, BUSY)
        return Asked(asked.user, asked.address, asked.text, asked.kind, access_id, counted=True)


def _granted(
    kind: _Kind, text: dict[str, str], access_id: str, at_ms: int, since_ms: int, count: int, size: int, why: str
) -> AccessGranted:
    caller: dict[str, Any] = cut(action=ACTION, sub=kind.user, address=kind.address, reason=f"password of {kind.user}: {why}")
    if kind.statement == TOGETHER:
        text = {"text": TOGETHER}
    times = {"at_ms": at_ms, "since_ms": since_ms, "count": count, "size_bytes": size}
    return AccessGranted(access="sql", access_id=access_id, **times, **caller, **text)


def _refusal(kind: tuple[int, str, str], counted: Count[str], now_ms: int) -> AccessRefused:
    status, user, address = kind
    caller = cut(action=ACTION, sub=user, address=address, reason=kept_back(counted.first))
    return AccessRefused(at_ms=now_ms, since_ms=counted.since_ms, count=counted.count, status=status, **caller)
