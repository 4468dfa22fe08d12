"""Evaluation of the rules at a moment: queries and expiry. Shared by the process and by backtests.

Holds: moments are on a grid (multiples of the rule's own `every_s`), so that a try on the past asks about the same ones.
"""

from collections.abc import Mapping
from typing import Any

from trainhouse.events.model.alert import AlertEvent
from trainhouse.projections.alerts.engine import Engine
from trainhouse.projections.alerts.errors import RuleFailedError
from trainhouse.projections.alerts.query import Ask, moment, texts
from trainhouse.projections.alerts.rules import SqlRule
from trainhouse.projections.alerts.verdict_cases import Attempt

JOBS_AT_ONCE = 500
_OVER = """
SELECT job_id, epoch, toUnixTimestamp64Milli(min(at)) AS over_ms FROM attempt_facts
WHERE job_id IN {jobs:Array(String)} AND fact IN ('released', 'stopped') AND at <= {now:DateTime64(3, 'UTC')}
GROUP BY job_id, epoch
"""


def on_grid(at_ms: int, every_ms: int) -> int:
    """The newest moment of the grid that is not after `at_ms`."""
    return at_ms - at_ms % every_ms


def look(engine: Engine, rule: SqlRule, ask: Ask, at_ms: int, every_ms: int) -> list[AlertEvent]:
    """One rule as of a moment. Blocks. Raises EndpointUnavailableError or RuleFailedError; the engine is as it was then."""
    return engine.rows(rule.name, answer(rule, ask, at_ms), at_ms, every_ms)


def answer(rule: SqlRule, ask: Ask, at_ms: int) -> list[dict[str, Any]]:
    """The rows of one rule as of a moment. Blocks. Raises EndpointUnavailableError or RuleFailedError."""
    try:
        return ask(rule.bound_sql, {**rule.values, "now": moment(at_ms)})
    except RuleFailedError as error:
        raise type(error)(f"rule {rule.name}: its query is refused: {error}") from error


def filled(ask: Ask, tables: set[str]) -> set[str]:
    """Returns those of the tables that have rows. Blocks. Raises EndpointUnavailableError or RuleFailedError."""
    parts = (f"(SELECT '{table}' AS name FROM {table} LIMIT 1)" for table in sorted(tables))
    return {str(row["name"]) for row in ask(" UNION ALL ".join(parts), {})} if tables else set()


def attempts_over(ask: Ask, attempts: set[Attempt], at_ms: int) -> Mapping[Attempt, int]:
    """Returns those of the attempts that are over by then, each with its end. Blocks. Raises EndpointUnavailableError or
    RuleFailedError."""
    jobs = sorted({job for job, _ in attempts})
    found: dict[Attempt, int] = {}
    for start in range(0, len(jobs), JOBS_AT_ONCE):
        rows = ask(_OVER, {"jobs": texts(jobs[start : start + JOBS_AT_ONCE]), "now": moment(at_ms)})
        found |= {(str(row["job_id"]), int(row["epoch"])): int(row["over_ms"]) for row in rows}
    return {attempt: found[attempt] for attempt in attempts if attempt in found}
