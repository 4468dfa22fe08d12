"""Curves of a job's metrics, and its ranks' step times as a map: of any length, drawn from at most some thousand points.

Holds: each bucket of steps keeps its least and its greatest value, so that no spike disappears; steps that a later attempt began
before are of the past and left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"])

FOR_EVER = 2**63
MetricName = Annotated[str, Query(min_length=1, max_length=256, description="The metric's name.")]

_EPOCHS = """
SELECT epoch, min(m.first_step) AS first, max(m.last_step) AS last FROM step_metrics_1h AS m
WHERE job_id = {job_id:String} AND metric = {metric:String} AND rank = {rank:UInt32}
GROUP BY epoch ORDER BY epoch
"""

# `ends` has for each of `epochs` the step from which on a later attempt made it anew.
_CURVE = """
SELECT min(m.step) AS step, toUnixTimestamp64Milli(argMin(m.time, m.step)) AS time_ms, min(m.value) AS least, max(m.value) AS greatest,
    avg(m.value) AS mean, count() AS points
FROM step_metrics AS m
WHERE m.job_id = {job_id:String} AND m.metric = {metric:String} AND m.rank = {rank:UInt32}
    AND m.step BETWEEN {low:UInt64} AND {high:UInt64} AND isFinite(m.value)
    AND m.step < transform(m.epoch, {epochs:Array(UInt32)}, {ends:Array(UInt64)}, toUInt64(0))
GROUP BY intDiv(m.step - {low:UInt64}, {width:UInt64})
ORDER BY step
"""

# Between two steps that a rank logged lies the time that they took; the wait of a restart is none of it (epochs are apart).
_HEATMAP = """
WITH chosen AS (
    SELECT metric FROM step_metrics WHERE job_id = {job_id:String}
    GROUP BY metric ORDER BY metric = 'step_time_ms' DESC, uniq(rank) DESC, count() DESC, metric LIMIT 1
), timed AS (
    SELECT rank, step, if(metric = 'step_time_ms', value, if(previous_step < step,
        dateDiff('millisecond', previous_time, time) / (step - previous_step), nan)) AS step_time_ms
    FROM (
        SELECT metric, rank, step, time, value,
            lagInFrame(step, 1, step) OVER w AS previous_step, lagInFrame(time) OVER w AS previous_time
        FROM step_metrics WHERE job_id = {job_id:String} AND metric = (SELECT metric FROM chosen)
        WINDOW w AS (PARTITION BY epoch, rank ORDER BY step ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
), span AS (SELECT min(step) AS low, max(step) AS high, max(rank) + 1 AS ranks FROM timed)
SELECT
    toUInt32(intDiv(rank, greatest(1, intDiv((SELECT ranks FROM span) - 1, {rows:UInt32}) + 1))) AS row,
    toUInt32(intDiv(step - (SELECT low FROM span), greatest(1, intDiv((SELECT high - low FROM span), {columns:UInt32}) + 1))) AS column,
    min(rank) AS first_rank, max(rank) AS last_rank, min(step) AS first_step, max(step) AS last_step,
    max(step_time_ms) AS slowest_ms, avg(step_time_ms) AS mean_ms
FROM timed WHERE isFinite(step_time_ms)
GROUP BY row, column ORDER BY row, column
"""


@router.get("/{job_id}/curves")
async def curves(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    metric: Annotated[list[MetricName], Query(min_length=1, max_length=20)],
    points: Annotated[int, Query(ge=10, le=5000, description="At most so many buckets of steps.")] = 1000,
    rank: Annotated[int, Query(ge=0, le=2**32 - 1)] = 0,
    from_step: Annotated[int, Query(ge=0, le=FOR_EVER)] = 0,
    to_step: Annotated[int, Query(ge=0, le=FOR_EVER)] = FOR_EVER,
) -> Json:
    """Curves as columns: of each bucket of steps the first step and its time, and the least, greatest and mean value."""
    await visible_job(here, principal, job_id)
    items = []
    for name in metric:
        values = {"job_id": job_id, "rank": rank, "metric": name}
        epochs = await here.reader.rows(_EPOCHS, values)
        low, high = max(from_step, min((e["first"] for e in epochs), default=0)), min(to_step, max((e["last"] for e in epochs), default=0))
        rows: list[Row] = []
        if epochs and low <= high:
            bounds = {"low": low, "high": high, "width": (high - low) // points + 1}
            rows = await here.reader.rows(_CURVE, values | bounds | {"epochs": [e["epoch"] for e in epochs], "ends": counted_until(epochs)})
        columns = {column: [row[column] for row in rows] for column in ("step", "time_ms", "least", "greatest", "mean")}
        items.append({"metric": name, "rank": rank, "points": sum(row["points"] for row in rows), **columns})
    return Json({"items": items, "next_cursor": None})


def counted_until(epochs: Sequence[Mapping[str, int]]) -> list[int]:
    """Of each epoch, in their order, the step before which its values count: where the earliest later attempt began. Pure."""
    ends: list[int] = []
    end = FOR_EVER
    for epoch in reversed(epochs):
        ends.append(end)
        end = min(end, epoch["first"])
    return ends[::-1]


@router.get("/{job_id}/step-heatmap")
async def step_heatmap(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    columns: Annotated[int, Query(ge=2, le=500)] = 120,
    rows: Annotated[int, Query(ge=2, le=512)] = 128,
) -> Json:
    """Step times by rank and step, ms a step: cells of a heatmap of at most `rows` x `columns`."""
    await visible_job(here, principal, job_id)
    cells = await here.reader.rows(_HEATMAP, {"job_id": job_id, "columns": columns, "rows": rows})
    return Json({"items": cells, "next_cursor": None})
