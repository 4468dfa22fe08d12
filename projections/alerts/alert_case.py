"""A case of a rule, from its first match until it is resolved. Pure.

Holds: a case fires once and resolves once; what was not looked at for a while has not been seen to hold all that time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from trainhouse.events.model.alert import AlertEvent, AlertFired, AlertResolved
from trainhouse.projections.alerts.rules import RuleBase

SOURCE = "trainhouse/alerts"
"""Of all events that the process of alerts writes."""
MAX_KEY_CHARS = 512
MAX_SUMMARY_CHARS = 2048
MAX_CASES = 1000
"""Of one rule at a time: more would tell nobody more."""


@dataclass(frozen=True, slots=True)
class Found:
    """Current findings of one case: `labels` in the rule's order. `since_ms` None: since now."""

    labels: tuple[tuple[str, str], ...]
    summary: str
    value: float | None = None
    limit: float | None = None
    since_ms: int | None = None

    @property
    def key(self) -> str:
        """Key of the case; names it for ever."""
        key = " ".join(f"{name}={value}" for name, value in self.labels)
        return key if len(key) <= MAX_KEY_CHARS else f"{key[: MAX_KEY_CHARS - 17]}#{_digest(key)}"


@dataclass(frozen=True, slots=True)
class Pending:
    """It holds since `since_ms`, not yet for long enough."""

    since_ms: int


@dataclass(frozen=True, slots=True)
class Open:
    """It fired. `gone_ms`: it has not been seen since then, not yet for long enough."""

    fired: AlertFired
    gone_ms: int | None = None


Case = Pending | Open


def judge(
    rule: RuleBase, before: Mapping[str, Case], found: Mapping[str, Found], at_ms: int, ended_ms: Mapping[str, int] | None = None
) -> tuple[dict[str, Case], list[AlertEvent]]:
    """The cases of a rule after it was looked at, and what is to be told. New cases beyond MAX_CASES are left out, in order of their keys.

    `ended_ms`: when those that are gone ended, where that is known; they resolve at once.
    """
    after: dict[str, Case] = {}
    events: list[AlertEvent] = []
    for key in sorted(before):
        case = before[key]
        if key not in found and isinstance(case, Open):
            end_ms = _end(rule, case, at_ms) if ended_ms is None else ended_ms.get(key, at_ms)
            if end_ms is None:
                after[key] = Open(case.fired, case.gone_ms if case.gone_ms is not None else at_ms)
            else:
                events.append(resolved(case.fired, end_ms))
    for key in sorted(found, key=lambda k: (k not in before, k)):
        case_now, fired = _holds(rule, before.get(key), found[key], at_ms)
        if key in before or len(after) < MAX_CASES:
            after[key] = case_now
            events += fired
    return after, events


def resolved(fired: AlertFired, at_ms: int, why: str = "") -> AlertResolved:
    """The end of an alert."""
    minutes = max(0, at_ms - fired.since_ms) / 60_000
    text = f"over after {minutes:.1f} min{f' ({why})' if why else ''}: {fired.summary}"
    about = fired.model_dump(exclude={"value", "limit", "summary", "at_ms"})
    return AlertResolved(**about, summary=text[:MAX_SUMMARY_CHARS], at_ms=at_ms)


def event_id(event: AlertEvent) -> str:
    """The same for the same alert, whoever says it: rule, key, since, and whether it is the beginning or the end."""
    fact = "fired" if isinstance(event, AlertFired) else "resolved"
    return f"alert:{event.rule}:{_digest(event.key)}:{event.since_ms}:{fact}"


def _holds(rule: RuleBase, case: Case | None, found: Found, at_ms: int) -> tuple[Case, list[AlertEvent]]:
    if isinstance(case, Open):
        return Open(case.fired), []
    since_ms = case.since_ms if case is not None else found.since_ms if found.since_ms is not None else at_ms
    if at_ms - since_ms < rule.for_s * 1000:
        return Pending(since_ms), []
    fired = AlertFired(
        rule=rule.name,
        key=found.key,
        severity=rule.severity,
        owner=rule.owner,
        runbook=rule.runbook,
        labels=dict(found.labels),
        summary=found.summary[:MAX_SUMMARY_CHARS],
        since_ms=since_ms,
        at_ms=at_ms if found.since_ms is None else min(at_ms, since_ms + round(rule.for_s * 1000)),
        value=found.value,
        limit=found.limit,
    )
    return Open(fired), [fired]


def _end(rule: RuleBase, case: Open, at_ms: int) -> int | None:
    """Returns the end of a case that does not hold now; None: not yet over."""
    gone_ms = case.gone_ms if case.gone_ms is not None else at_ms
    return at_ms if at_ms - gone_ms >= rule.resolve_after_s * 1000 else None


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
