"""Cases of a rule from verdicts, until they are lifted or out of date, or their attempt is over. Pure.

Holds: hearing the same verdicts again changes nothing; an end that is older than a verdict does not touch it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainhouse.events.model.verdict import FailureBlamed, VerdictLifted
from trainhouse.projections.alerts.alert_case import MAX_CASES, Found
from trainhouse.projections.alerts.rules import VerdictRule, matches, text_of

Row = Mapping[str, Any]
Attempt = tuple[str, int]
LIFTED, BLAMED = VerdictLifted.event_type, FailureBlamed.event_type
# By these a lift names what it takes back, as far as the verdict had them.
_NAMES = ("job_id", "epoch", "rank", "node_id", "device_id", "fault")


@dataclass(frozen=True, slots=True)
class _Tracked:
    row: Row
    since_ms: int
    seen_ms: int

    @property
    def attempt(self) -> Attempt | None:
        return (self.row["job_id"], self.row["epoch"]) if self.row["job_id"] and self.row["epoch"] is not None else None


class VerdictTracker:
    """The cases of one rule. `settled` says when alerts that are over ended: a verdict of before is old news."""

    def __init__(self, rule: VerdictRule) -> None:
        self._rule = rule
        self._cases: dict[str, _Tracked] = {}
        self._ended_ms: dict[str, int] = {}
        self._settled: dict[str, int] = {}
        self.left_out = 0

    @property
    def attempts(self) -> set[Attempt]:
        """The attempts that its cases are about."""
        return {case.attempt for case in self._cases.values() if case.attempt is not None} if self._rule.verdict != BLAMED else set()

    @property
    def cases(self) -> int:
        """Number of cases that hold."""
        return len(self._cases)

    def settle(self, key: str, at_ms: int) -> None:
        """An alert of this key ended then."""
        self._settled[key] = max(at_ms, self._settled.get(key, 0))

    def remember(self, key: str, labels: Mapping[str, str], since_ms: int, at_ms: int) -> None:
        """An alert of this key is open: so its verdict was heard, whatever else is known of it."""
        if key not in self._cases:
            blank: dict[str, Any] = dict.fromkeys((*_NAMES, "pool"), "") | {"epoch": None, "rank": None, "value": None, "limit": None}
            numbers = {n: int(labels[n]) for n in ("epoch", "rank") if labels.get(n, "").isdigit()}
            self._cases[key] = _Tracked(blank | dict(labels) | numbers, since_ms, at_ms)

    def on_verdict(self, row: Row) -> None:
        """One verdict, in the order of the topic."""
        rule, at_ms = self._rule, int(row["at"])
        if matches(dict(row), rule.verdict, rule.where):
            self._begin(row, at_ms)
        elif row["type"] == LIFTED and row["lifted"] == rule.verdict:
            self._end(at_ms, lambda case: _agree(case.row, row, _NAMES))
        for ending in rule.ended_by:
            if matches(dict(row), ending.verdict, ending.where):
                self._end(at_ms, lambda case: _agree(case.row, row, rule.labels))
        if row["type"] == BLAMED and rule.verdict != BLAMED:
            self._end(at_ms, lambda case: case.attempt == (row["job_id"], row["epoch"]))

    def found(self, at_ms: int, over: Mapping[Attempt, int]) -> tuple[dict[str, Found], dict[str, int]]:
        """Returns the cases that hold at this moment, and the ends of the rest. `over`: attempts that are, and when."""
        for key, case in list(self._cases.items()):
            end_ms = case.seen_ms + round(self._rule.resolve_after_s * 1000)
            if case.attempt is not None and self._rule.verdict != BLAMED and case.attempt in over:
                end_ms = min(end_ms, over[case.attempt])
            if end_ms <= at_ms:
                self._close(key, max(end_ms, case.since_ms))
        self._forget(at_ms)
        ended, self._ended_ms = self._ended_ms, {}
        return {key: _found(self._rule, case) for key, case in self._cases.items()}, ended

    def _begin(self, row: Row, at_ms: int) -> None:
        key = _found(self._rule, _Tracked(row, at_ms, at_ms)).key
        known = self._cases.get(key)
        if at_ms <= self._settled.get(key, -1):
            return
        if known is None and len(self._cases) >= MAX_CASES:
            self.left_out += 1
            return
        since_ms = known.since_ms if known is not None else at_ms
        self._cases[key] = _Tracked(row, since_ms, max(at_ms, known.seen_ms if known is not None else at_ms))

    def _end(self, at_ms: int, is_it: Any) -> None:
        for key, case in list(self._cases.items()):
            if case.seen_ms <= at_ms and is_it(case):
                self._close(key, at_ms)

    def _close(self, key: str, at_ms: int) -> None:
        del self._cases[key]
        self._ended_ms[key] = at_ms
        self.settle(key, at_ms)

    def _forget(self, at_ms: int) -> None:
        """Drops cases that ended longer ago than any verdict is read back."""
        horizon_ms = at_ms - round(self._rule.resolve_after_s * 1000) - 1
        for key in [key for key, ended_ms in self._settled.items() if ended_ms < horizon_ms]:
            del self._settled[key]


def _found(rule: VerdictRule, case: _Tracked) -> Found:
    row = {name: text_of(value) if value is None else value for name, value in case.row.items()}
    labels = tuple((name, text_of(case.row.get(name))) for name in rule.labels)
    return Found(labels, fill(rule.summary, row), case.row.get("value"), case.row.get("limit"), case.since_ms)


def fill(template: str, row: Mapping[str, Any]) -> str:
    """A summary with its places filled; one whose value has no number is shown without its format."""
    try:
        return template.format_map(_Blank(row))
    except (ValueError, TypeError):
        return template.format_map(_Blank({name: _Text(value) for name, value in row.items()}))


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        return _Text("")


class _Text(str):
    def __format__(self, _: str) -> str:
        return str(self)


def _agree(case: Row, row: Row, names: tuple[str, ...]) -> bool:
    """Returns whether both say the same as far as both have a name, and have one in common."""
    both = [(text_of(case.get(n)), text_of(row.get(n))) for n in names]
    shared = [(a, b) for a, b in both if a and b]
    return bool(shared) and all(a == b for a, b in shared)
