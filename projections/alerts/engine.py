"""Alert engine: rows and verdicts in, alerts out. Pure: no clock, no IO.

Holds: the same rows and verdicts at the same moments give the same alerts, live or on the past; what the topic of alerts says was told
already is not told again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainhouse.events.model.alert import AlertEvent, AlertFired, AlertResolved
from trainhouse.projections.alerts.alert_case import Case, Found, Open, Pending, judge, resolved
from trainhouse.projections.alerts.errors import RuleFailedError
from trainhouse.projections.alerts.rules import Rule, SqlRule, VerdictRule, text_of
from trainhouse.projections.alerts.verdict_cases import Attempt, VerdictTracker, fill

BLIND_TURNS = 2.5
"""A rule that was not looked at for longer than so many of its turns has not been seen to hold in between."""


class Engine:
    """The rules that run, by name. Moments never go back."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: dict[str, Rule] = {rule.name: rule for rule in rules}
        self._cases: dict[str, dict[str, Case]] = {name: {} for name in self.rules}
        self._trackers = {name: VerdictTracker(rule) for name, rule in self.rules.items() if isinstance(rule, VerdictRule)}
        self._asked_ms: dict[str, int] = {}
        self._strangers: dict[tuple[str, str], AlertFired] = {}

    @property
    def open(self) -> list[AlertFired]:
        """Alerts that fired and have not resolved."""
        return [case.fired for cases in self._cases.values() for case in cases.values() if isinstance(case, Open)]

    @property
    def attempts(self) -> set[Attempt]:
        """The attempts that verdicts are about: when one is over, so are its verdicts."""
        return {attempt for tracker in self._trackers.values() for attempt in tracker.attempts}

    @property
    def busy(self) -> bool:
        """True if time alone can change what verdicts say."""
        return any(tracker.cases or self._cases[name] for name, tracker in self._trackers.items())

    @property
    def left_out(self) -> int:
        """Cases of verdicts beyond the bound."""
        return sum(tracker.left_out for tracker in self._trackers.values())

    def restore(self, events: Iterable[AlertEvent]) -> None:
        """Restores the alerts of the topic, in its order; called before anything else."""
        for event in events:
            at = (event.rule, event.key)
            cases = self._cases.get(event.rule)
            tracker = self._trackers.get(event.rule)
            if isinstance(event, AlertFired):
                if cases is None:
                    self._strangers[at] = event
                else:
                    cases[event.key] = Open(event)
            elif isinstance(event, AlertResolved):
                self._strangers.pop(at, None)
                if cases is not None:
                    cases.pop(event.key, None)
                if tracker is not None:
                    tracker.settle(event.key, event.at_ms)
        for name, tracker in self._trackers.items():
            for key, case in self._cases[name].items():
                if isinstance(case, Open):
                    tracker.remember(key, case.fired.labels, case.fired.since_ms, case.fired.at_ms)

    def retire(self, at_ms: int) -> list[AlertEvent]:
        """Ends the alerts of rules that are no more."""
        gone, self._strangers = self._strangers, {}
        return [resolved(gone[at], at_ms, "its rule is no more") for at in sorted(gone)]

    def rows(self, name: str, rows: Sequence[Mapping[str, Any]], at_ms: int, every_ms: int) -> list[AlertEvent]:
        """The answer of a rule's query as of a moment. Raises RuleFailedError when it is not what the rule promises; then nothing
        changes."""
        rule = self.rules[name]
        assert isinstance(rule, SqlRule)
        found = {case.key: case for case in (_case(rule, row) for row in rows) if case is not None}
        last_ms = self._asked_ms.get(name)
        if last_ms is not None and at_ms <= last_ms:
            return []
        before = self._cases[name]
        if last_ms is not None and at_ms - last_ms > BLIND_TURNS * every_ms:
            before = {key: Open(case.fired) for key, case in before.items() if not isinstance(case, Pending)}
        self._asked_ms[name] = at_ms
        self._cases[name], events = judge(rule, before, found, at_ms)
        return events

    def on_verdict(self, row: Mapping[str, Any]) -> None:
        """One verdict as a row of the table `verdicts`, its time in milliseconds."""
        for tracker in self._trackers.values():
            tracker.on_verdict(row)

    def tick(self, at_ms: int, over: Mapping[Attempt, int]) -> list[AlertEvent]:
        """Evaluates the verdicts so far, as of a moment. `over`: which of `attempts` are, and since when."""
        events: list[AlertEvent] = []
        for name, tracker in self._trackers.items():
            found, ended_ms = tracker.found(at_ms, over)
            self._cases[name], changes = judge(self.rules[name], self._cases[name], found, at_ms, ended_ms)
            events += changes
        return events


def _case(rule: SqlRule, row: Mapping[str, Any]) -> Found | None:
    missing = [name for name in (*rule.labels, *rule.texts, "value") if name not in row]
    if missing:
        raise RuleFailedError(f"rule {rule.name}: its query gives no column {missing[0]!r}; it gives {', '.join(row)}")
    value = row["value"]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RuleFailedError(f"rule {rule.name}: `value` is {value!r}, not a number")
    if math.isnan(value) or not rule.is_bad(value):
        return None
    labels = tuple((name, text_of(row[name])) for name in rule.labels)
    texts = {name: text_of(row[name]) for name in rule.texts}
    places = {**rule.parameters, **texts, **dict(labels), "value": float(value), "limit": rule.limit}
    return Found(labels, fill(rule.summary, places), float(value), rule.limit)
