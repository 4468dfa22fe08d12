"""Usage and cost of the fleet: by hour, and by team, node, project or job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1", tags=["fleet"])

MOST_ROWS = 20_000
DEFAULT_SPAN = timedelta(days=1)
Moment = Annotated[datetime | None, Query(description="RFC 3339.")]
Pool = Annotated[str | None, Query(max_length=128)]

# Teams' totals are of jobs of the caller's projects; nodes and pools are everybody's, and tell no names.
_UTILIZATION = {
    "team": "SELECT hour, team, pool, held_gpu_seconds, capacity_gpu_seconds, held_share, utilization_pct "
    "FROM utilization_of_projects(projects = {own_projects:Array(String)})",
    "node": "SELECT hour, node_id, pool, held_gpu_seconds, capacity_gpu_seconds, held_share, utilization_pct FROM utilization_by_node",
    "hour": "SELECT hour, pool, nodes, held_gpu_seconds, capacity_gpu_seconds, held_share, utilization_pct FROM utilization_by_hour",
}
_NAME = {"team": "team", "node": "node_id", "hour": "pool"}
_COST = """
SELECT {column} AS name, category, currency, spot, sum(c.gpu_seconds) AS gpu_seconds,
    if(countIf(c.cost IS NULL) = count(), NULL, sum(c.cost)) AS cost, sumIf(c.gpu_seconds, c.cost IS NULL) AS unpriced_gpu_seconds
FROM cost AS c WHERE {where}
GROUP BY name, category, currency, spot ORDER BY gpu_seconds DESC, name, category, spot LIMIT {{limit:UInt32}}
"""
_COST_OVER_TIME = """
SELECT {step} AS at, c.team AS name, currency, sum(c.gpu_seconds) AS gpu_seconds,
    if(countIf(c.cost IS NULL) = count(), NULL, sum(c.cost)) AS cost
FROM cost AS c WHERE {where}
GROUP BY at, name, currency ORDER BY at, name, currency LIMIT {{limit:UInt32}}
"""
_STEPS = {"hour": "c.hour", "day": "toStartOfDay(c.hour)"}
_GOODPUT = """
SELECT {column} AS name, sum(g.held_gpu_seconds) AS held_gpu_seconds, sum(g.stepping_gpu_seconds) AS stepping_gpu_seconds,
    sum(g.rework_gpu_seconds) AS rework_gpu_seconds, sum(g.unknown_gpu_seconds) AS unknown_gpu_seconds,
    if(held_gpu_seconds > unknown_gpu_seconds, stepping_gpu_seconds / (held_gpu_seconds - unknown_gpu_seconds), NULL) AS goodput
FROM goodput AS g WHERE {where}
GROUP BY name ORDER BY name LIMIT {{limit:UInt32}}
"""


def _asked(since: Moment = None, until: Moment = None, pool: Pool = None) -> Where:
    """The hours and the pool that a caller asks about. Raises ProblemError 400."""
    where = _period(since, until)
    where.equal("pool", pool)
    return where


Asked = Annotated[Where, Depends(_asked)]


@router.get("/utilization")
async def utilization(here: Here, principal: Viewer, where: Asked, by: Literal["team", "node", "hour"] = "team") -> Json:
    """Device-seconds held and there to be held, by hour; of teams, what jobs held that the caller sees. Without `since` the last day."""
    values = where.values | {"limit": MOST_ROWS} | ({"own_projects": principal.projects} if by == "team" else {})
    rows = await here.reader.rows(f"{_UTILIZATION[by]} WHERE {where.text} ORDER BY hour, {_NAME[by]} LIMIT {{limit:UInt32}}", values)
    return Json({"items": rows, "next_cursor": None})


@router.get("/cost")
async def cost(here: Here, principal: Viewer, where: Asked, by: Literal["team", "project", "job"] = "team") -> Json:
    """Device-seconds by what they went into, and their price; null where the pool's policy names none. Without `since` the last day."""
    return await _sums(here, principal, where, _COST, by)


@router.get("/cost/over-time")
async def cost_over_time(here: Here, principal: Viewer, where: Asked, step: Literal["hour", "day"] = "hour") -> Json:
    """Device-seconds and their price by team, hour by hour or day by day; a step in which a team used nothing has no row."""
    where.visible(principal)
    sql = _COST_OVER_TIME.format(step=_STEPS[step], where=where.text)
    return Json({"items": await here.reader.rows(sql, where.values | {"limit": MOST_ROWS}), "next_cursor": None})


@router.get("/goodput")
async def goodput(here: Here, principal: Viewer, where: Asked, by: Literal["hour", "pool", "team", "project", "job"] = "hour") -> Json:
    """The share of held device-seconds that made steps which were kept; null where nothing is known. Without `since` the last day."""
    return await _sums(here, principal, where, _GOODPUT, by)


async def _sums(here: Gateway, principal: Principal, where: Where, sql: str, by: str) -> Json:
    where.visible(principal)
    column = "job_id" if by == "job" else by
    rows = await here.reader.rows(sql.format(column=column, where=where.text), where.values | {"limit": MOST_ROWS})
    return Json({"items": rows, "next_cursor": None})


def _period(since: datetime | None, until: datetime | None) -> Where:
    """Hours from `since` on and before `until`. Raises ProblemError 400 where there is none."""
    end = _utc(until) if until else None
    begin = _utc(since) if since else _a_day_before(end or datetime.now(UTC))
    if end is not None and begin >= end:
        raise ProblemError(400, "Bad period", "`since` must be earlier than `until`")
    where = Where()
    where.add("hour >= toStartOfHour(toDateTime({since:UInt32}, 'UTC'))", since=_seconds(begin))
    if end is not None:
        where.add("hour < toDateTime({until:UInt32}, 'UTC')", until=_seconds(end))
    return where


def _a_day_before(at: datetime) -> datetime:
    try:
        return at - DEFAULT_SPAN
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)  # the calendar's first day has none before it


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _seconds(at: datetime) -> int:
    return max(0, min(2**32 - 1, int(at.timestamp())))
