"""Asks a report's questions and puts the answers into its model.

Holds: every figure comes from one SQL answer; nothing is asked twice.
Never: computes a figure beyond naming it (the SQL and the model do).
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainhouse.projections.report import queries
from trainhouse.projections.report.device_time import device_time
from trainhouse.projections.report.model import Compared, Health, Recovery
from trainhouse.projections.report.period import Period
from trainhouse.projections.report.queries import Question

Ask = Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]
"""A query and its bound values to rows by column name. May raise ClickHouseRequestError."""


def gather(ask: Ask, period: Period, now_ms: int) -> Compared:
    """The period and the one before it. Blocks on ClickHouse; raises what `ask` raises."""
    return Compared(health(ask, period, now_ms), health(ask, period.before, now_ms), now_ms)


def health(ask: Ask, period: Period, now_ms: int) -> Health:
    """One period in figures. Blocks."""

    def rows(question: Question) -> list[dict[str, Any]]:
        return ask(*question)

    recoveries = {str(r["category"]): _recovery(r) for r in rows(queries.failures(period))}
    spent = rows(device_time(period, now_ms))
    return Health(
        period,
        total=recoveries.pop("", None),
        by_category=recoveries,
        by_rule=rows(queries.failures_by_rule(period)),
        by_team=rows(queries.failures_by_team(period)),
        by_job=rows(queries.failures_by_job(period)),
        over_time={(int(r["piece"]), str(r["category"])): int(r["failures"]) for r in rows(queries.failures_over_time(period))},
        time={(int(r["piece"]), str(r["cause"])): float(r["device_s"]) for r in spent},
        node_s=sum(float(r["node_s"]) for r in spent),
        unjudged=int(rows(queries.unjudged(period))[0]["attempts"]),
        checkpoints=rows(queries.checkpoints(period))[0],
        checkpoint_failures=rows(queries.checkpoint_failures(period)),
        nodes=rows(queries.worst_nodes(period)),
        alerts=rows(queries.alerts(period)),
    )


def _recovery(row: Mapping[str, Any]) -> Recovery:
    return Recovery(
        failures=int(row["failures"]),
        jobs=int(row["jobs"]),
        recovered=int(row["recovered"]),
        by_status=int(row["by_status"]),
        p50_s=_number(row["p50_s"]),
        p95_s=_number(row["p95_s"]),
        worst_s=_number(row["worst_s"]),
        lost_steps=None if row["lost_steps"] is None else int(row["lost_steps"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
