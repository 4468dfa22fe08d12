"""Small curves beside the figures of now: jobs that held devices and that waited, alerts that were open, losses of jobs.

Holds: jobs and alerts are those that the caller may see; a job that is there and holds nothing waits.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.fleet.alert_causes import OWN_ALERTS
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1/fleet", tags=["fleet"])

# A job is there from its submission until its end. An attempt holds devices from its allocation until its last node has freed them; a job
# without such facts (its allocation is older than they are kept) holds them from when its row says so.
_THERE = """
SELECT toUnixTimestamp(j.submitted_at) AS began, toUnixTimestamp(j.finished_at) AS ended, toUInt32(count()) AS jobs
FROM jobs AS j
WHERE j.submitted_at IS NOT NULL AND j.state != 'REJECTED'
    AND ifNull(j.finished_at, now64(3)) >= toDateTime({since:UInt32}, 'UTC') AND (SEEN)
GROUP BY began, ended
"""
_HELD = """
WITH held AS (
    SELECT a.job_id AS job_id, a.epoch AS epoch, min(a.allocated_at) AS began,
        if(countIf(a.freed_at IS NULL) > 0, NULL, max(a.freed_at)) AS ended
    FROM allocations AS a WHERE a.allocated_at IS NOT NULL GROUP BY job_id, epoch
)
SELECT toUnixTimestamp(h.began) AS began, toUnixTimestamp(least(ifNull(h.ended, j.finished_at), ifNull(j.finished_at, h.ended))) AS ended,
    toUInt32(count()) AS jobs
FROM (
    SELECT job_id, began, ended FROM held
    UNION ALL
    SELECT job_id, allocated_at AS began, finished_at AS ended FROM jobs
    WHERE allocated_at IS NOT NULL AND state != 'PENDING' AND job_id NOT IN (SELECT job_id FROM held)
) AS h
INNER JOIN (SELECT job_id, finished_at FROM jobs WHERE state != 'REJECTED' AND (SEEN)) AS j ON j.job_id = h.job_id
WHERE ifNull(h.ended, now64(3)) >= toDateTime({since:UInt32}, 'UTC')
    AND ifNull(j.finished_at, now64(3)) >= toDateTime({since:UInt32}, 'UTC')
GROUP BY began, ended
"""
_ALERTS = """
SELECT toUnixTimestamp(a.since) AS began, toUnixTimestamp(a.resolved_at) AS ended, toUInt32(count()) AS alerts
FROM alerts AS a WHERE ifNull(a.resolved_at, now64(3)) >= toDateTime({since:UInt32}, 'UTC') AND (SEEN) GROUP BY began, ended
"""


_LOSSES = """
SELECT m.job_id AS job_id,
    toUInt32(least({parts:UInt32} - 1, intDiv((m.last_step - s.low) * {parts:UInt32}, greatest(1, s.high - s.low)))) AS part,
    avg(m.mean_value) AS value
FROM (SELECT job_id, last_step, mean_value FROM step_metrics_1m WHERE job_id IN {jobs:Array(String)} AND metric = 'loss' AND rank = 0) AS m
INNER JOIN (
    SELECT l.job_id AS job_id, min(l.last_step) AS low, max(l.last_step) AS high FROM step_metrics_1m AS l
    WHERE job_id IN {jobs:Array(String)} AND metric = 'loss' AND rank = 0 GROUP BY job_id
) AS s ON s.job_id = m.job_id
WHERE m.job_id IN (SELECT job_id FROM jobs WHERE SEEN) AND m.mean_value IS NOT NULL
GROUP BY job_id, part ORDER BY job_id, part
"""


@router.get("/losses")
async def losses(
    here: Here,
    principal: Viewer,
    job: Annotated[list[Annotated[str, Query(max_length=128)]], Query(min_length=1, max_length=100, description="Jobs by id.")],
    parts: Annotated[int, Query(ge=2, le=100, description="At most so many points of each.")] = 32,
) -> Json:
    """The loss of some jobs from their first step to their newest, as small curves; a job that logged none has no item."""
    jobs = Where()
    jobs.visible(principal)
    rows = await here.reader.rows(_LOSSES.replace("SEEN", jobs.text), jobs.values | {"jobs": job, "parts": parts})
    curves: dict[str, list[float]] = {}
    for row in rows:
        curves.setdefault(row["job_id"], []).append(row["value"])
    return Json({"items": [{"job_id": id, "values": values} for id, values in curves.items()], "next_cursor": None})


@router.get("/trend")
async def trend(
    here: Here,
    principal: Viewer,
    hours: Annotated[int, Query(ge=1, le=168, description="So many hours up to now.")] = 24,
    parts: Annotated[int, Query(ge=2, le=200, description="So many moments in them.")] = 48,
) -> Json:
    """Jobs that held devices, jobs that waited and alerts that were open, at moments of the last hours; the last moment is now."""
    part_s = max(60, hours * 3600 // parts)
    now_s = int(time.time())
    moments = [now_s - (parts - 1 - n) * part_s for n in range(parts)]
    jobs, alerts = Where(), Where()
    jobs.visible(principal)
    if not principal.everywhere:
        alerts.add(OWN_ALERTS, visible_projects=list(principal.projects))
    since = {"since": moments[0]}
    there = await here.reader.rows(_THERE.replace("SEEN", jobs.text), since | jobs.values)
    held = await here.reader.rows(_HELD.replace("SEEN", jobs.text), since | jobs.values)
    opened = await here.reader.rows(_ALERTS.replace("SEEN", alerts.text), since | alerts.values)
    running = counted(moments, held, "jobs")
    waiting = [max(0, known - holding) for known, holding in zip(counted(moments, there, "jobs"), running, strict=True)]
    return Json({"at_s": moments, "running": running, "waiting": waiting, "alerts": counted(moments, opened, "alerts")})


def counted(moments: Sequence[int], spans: Sequence[Mapping[str, Any]], what: str) -> list[int]:
    """Number of the spans (`began`, `ended` or null, in seconds) that last at each moment; the moments rise. Pure."""
    changes = [0] * (len(moments) + 1)
    for row in spans:
        changes[bisect_left(moments, row["began"])] += row[what]
        if row["ended"] is not None:
            changes[bisect_left(moments, max(row["began"], row["ended"]))] -= row[what]
    return list(accumulate(changes))[:-1]
