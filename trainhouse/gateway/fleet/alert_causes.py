"""Open alerts by cause: one row for a node that was lost, whatever rules it made fire.

Holds: the rule of grouping is `projections/alerts/causes.py`, the command line's too; alerts of jobs that the caller may not see are left
out before they are grouped.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.projections.alerts.causes import BLAMES_QUERY, LOST_QUERY, by_cause, links_of

router = APIRouter(prefix="/v1", tags=["fleet"])

MOST_ALERTS = 10_000
COLUMNS = "rule, key, since, state, severity, owner, runbook, labels, value, limit, summary, fired_at, resolved_at"
# Alerts of no job and no project, and those of the caller's.
OWN_ALERTS = """
labels['job_id'] = '' AND labels['project'] = '' OR labels['project'] IN {visible_projects:Array(String)}
    OR labels['job_id'] IN (SELECT job_id FROM jobs WHERE project IN {visible_projects:Array(String)})
"""


@router.get("/alerts/causes")
async def alert_causes(here: Here, principal: Viewer) -> Json:
    """Open alerts in groups by cause, the gravest first: a node, a job, or a rule; each with its rules and its alerts."""
    where = Where()
    if not principal.everywhere:
        where.add(f"({OWN_ALERTS})", visible_projects=list(principal.projects))
    rows = await here.reader.rows(
        f"SELECT {COLUMNS}, toUnixTimestamp64Milli(since) AS since_ms FROM alerts_open WHERE {where.text} "
        "ORDER BY since DESC, rule, key LIMIT {limit:UInt32}",
        where.values | {"limit": MOST_ALERTS},
    )
    await redacted(here.reader, principal, rows, ("summary", "key"))
    links = links_of(*[await here.reader.rows(sql) for sql in (BLAMES_QUERY, LOST_QUERY)]) if rows else links_of((), ())
    return Json({"items": [_as_reported(group) for group in by_cause(rows, links)], "next_cursor": None})


def _as_reported(group: dict[str, Any]) -> dict[str, Any]:
    """Times as everywhere in the API."""
    since = min(group["alerts"], key=lambda row: row["since_ms"])["since"]
    alerts = [{name: value for name, value in row.items() if name != "since_ms"} for row in group["alerts"]]
    return {name: value for name, value in group.items() if name != "since_ms"} | {"since": since, "alerts": alerts}
