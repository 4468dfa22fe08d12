"""Alert rules as data: condition, duration, owner and severity.

Holds: a rule asks of a moment that it is given, never of "now": so the same rule runs live and on the past. What is wrong with a rule is
found when it is read, not when it is needed.
Never: runs anything.
"""

import re
import string
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from trainhouse.events.model.alert import Severity
from trainhouse.events.model.base import Model
from trainhouse.events.model.job import JobReviewed
from trainhouse.events.wire.topic_types import TOPIC_EVENTS
from trainhouse.events.wire.topics import VERDICTS
from trainhouse.projections.rows.verdict_rows import COLUMNS

MOMENT_TYPE = "DateTime64(3, 'UTC')"
VERDICT_TYPES = frozenset(event.event_type for event in TOPIC_EVENTS[VERDICTS] if event is not JobReviewed)
OF_CHAMPION = ("project", "model", "version")
_PLACE = re.compile(r"\{([A-Za-z_]\w*)(?::[^{}]+)?\}")
_CLOCK = re.compile(r"\b(now|now64|nowInBlock|today|yesterday|UTCTimestamp|current_timestamp|rand|generateUUIDv4)\s*\(", re.IGNORECASE)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=128)]
Column = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]


class When(StrEnum):
    """On which side of its limit a value is bad."""

    ABOVE = "above"
    BELOW = "below"


class RuleBase(Model):
    """Common fields of all rules. `labels` name the columns that tell cases apart; `summary`: for people, with {label}, {value}, {limit}.

    It must hold for `for_s` before it fires, and be gone (or not be heard again) for `resolve_after_s` before it resolves.
    """

    name: Name
    severity: Severity
    owner: str = Field("", max_length=128)
    runbook: str = Field("", max_length=1024)
    summary: str = Field(min_length=1, max_length=1024)
    labels: tuple[Column, ...] = Field((), max_length=8)
    for_s: float = Field(0.0, ge=0, le=7 * 86_400)
    resolve_after_s: float = Field(0.0, ge=0, le=90 * 86_400)
    enabled: bool = True

    def _refuse_places(self, known: frozenset[str]) -> None:
        try:
            names = {name for _, name, _, _ in string.Formatter().parse(self.summary) if name is not None}
        except ValueError as error:
            raise ValueError(f"the summary is no template: {error}; double a brace to write one") from error
        unknown = sorted(names - known)
        if unknown:
            raise ValueError(f"the summary names {{{unknown[0]}}}, which this rule does not have: there are {', '.join(sorted(known))}")


class SqlRule(RuleBase):
    """Fires for each row of `sql` whose `value` is on the wrong side of `limit`.

    The query gives the labels' columns and `value`; beside them those of `texts`, which stand in the summary and tell no cases apart.
    {now} is the moment that is asked about, {limit} and the `parameters` are values; all are bound by ClickHouse, never pasted.
    `needs`: a table that gives the query no row while it has none itself; the process does not ask until then.
    `rolls_back`: while it fires for the champion of a model whose gate has `on_drift: rollback`, the champion before is asked back, once.
    """

    sql: str = Field(min_length=1, max_length=20_000)
    when: When
    limit: float
    every_s: int = Field(30, ge=1, le=86_400)
    texts: tuple[Column, ...] = Field((), max_length=8)
    parameters: dict[Column, float | int | str] = Field(default_factory=dict, max_length=32)
    needs: Column | None = None
    rolls_back: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._refuse_places(frozenset(self.labels) | frozenset(self.texts) | {"value", "limit"} | frozenset(self.parameters))
        clock = _CLOCK.search(self.sql)
        if clock:
            raise ValueError(f"the query calls {clock[1]}(): write {{now}}, the moment asked about, so that the rule runs on the past too")
        unknown = sorted({m[1] for m in _PLACE.finditer(self.sql)} - {"now", "limit"} - set(self.parameters))
        if unknown:
            raise ValueError(f"the query names {{{unknown[0]}}}: there are now, limit and the rule's own `parameters`")
        if "now" not in {m[1] for m in _PLACE.finditer(self.sql)}:
            raise ValueError("the query does not name {now}: it would give the same answer for every moment")
        if self.rolls_back and not set(OF_CHAMPION) <= set(self.labels):
            raise ValueError(f"a rule that rolls back has the labels {', '.join(OF_CHAMPION)}: they name the champion")
        return self

    @property
    def bound_sql(self) -> str:
        """The query with typed places, as ClickHouse binds them."""
        kinds = {"now": MOMENT_TYPE, "limit": "Float64"} | {name: _type(value) for name, value in self.parameters.items()}
        return _PLACE.sub(lambda m: f"{{{m[1]}:{kinds[m[1]]}}}", self.sql).strip().rstrip(";")

    @property
    def values(self) -> dict[str, str]:
        """Values of the placeholders, except the moment."""
        return {name: str(value) for name, value in self.parameters.items()} | {"limit": repr(self.limit)}

    def is_bad(self, value: float) -> bool:
        """Returns whether a value is on the wrong side; NaN never is."""
        return value > self.limit if self.when is When.ABOVE else value < self.limit


class Ending(Model):
    """A verdict that ends another: of this type, with these values, and with the same labels as far as it has them."""

    verdict: str
    where: dict[Column, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        _refuse_verdict(self.verdict, self.where)
        return self


class VerdictRule(RuleBase):
    """Fires on a verdict, resolves when it is lifted or ended, when its attempt is over, or `resolve_after_s` after it was last heard."""

    verdict: str
    where: dict[Column, tuple[str, ...]] = Field(default_factory=dict)
    ended_by: tuple[Ending, ...] = ()
    resolve_after_s: float = Field(3600.0, gt=0, le=90 * 86_400)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_verdict(self.verdict, self.where)
        unknown = sorted(set(self.labels) - COLUMNS)
        if unknown:
            raise ValueError(f"verdicts have no column {unknown[0]!r}; there are {', '.join(sorted(COLUMNS))}")
        self._refuse_places(COLUMNS)
        return self


Rule = SqlRule | VerdictRule


def matches(row: dict[str, Any], verdict: str, where: dict[str, tuple[str, ...]]) -> bool:
    """Returns whether a row of `verdicts` is of this type and has one of the values of each column."""
    return bool(row["type"] == verdict) and all(text_of(row.get(column)) in wanted for column, wanted in where.items())


def text_of(value: Any) -> str:
    """A column's value as a label: numbers without a fraction look like counts."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _type(value: float | int | str) -> str:
    return "String" if isinstance(value, str) else "Float64"


def _refuse_verdict(verdict: str, where: dict[str, tuple[str, ...]]) -> None:
    if verdict not in VERDICT_TYPES:
        raise ValueError(f"{verdict!r} is no verdict; there are {', '.join(sorted(VERDICT_TYPES))}")
    unknown = sorted(set(where) - COLUMNS)
    if unknown:
        raise ValueError(f"verdicts have no column {unknown[0]!r}; there are {', '.join(sorted(COLUMNS))}")
