"""Up to a hundred runs beside each other: what they are, where their configs differ, their curves over the same buckets of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.gateway import differences
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.curves import FOR_EVER, MetricName, counted_until
from trainhouse.gateway.routes.job_parts import configs
from trainhouse.gateway.routes.jobs import COLUMNS
from trainhouse.gateway.runs.run_parameters import joined, parameters
from trainhouse.run_names import names_of

_BANDS = ("least", "greatest")
_COLUMNS = ("step", "time_ms", "least", "greatest", "mean")
router = APIRouter(prefix="/v1/compare", tags=["jobs"])

MOST_RUNS = 100
Chosen = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=128)]], Query(min_length=1, max_length=MOST_RUNS, description="Ids of jobs.")
]

_MOST_METRICS = 200
# Not of the points: a hundred runs may have a hundred million.
LAST = """
SELECT job_id, metric, m.value AS last, m.min_value AS least, m.max_value AS greatest
FROM metric_latest AS m WHERE job_id IN {job_ids:Array(String)} AND rank = 0
"""
_USED = """
SELECT job_id, sum(g.gpu_seconds) AS gpu_seconds, sumIf(g.gpu_seconds, g.category = 'stepping') AS stepping_gpu_seconds
FROM gpu_seconds AS g WHERE job_id IN {job_ids:Array(String)} GROUP BY job_id
"""
_EPOCHS = """
SELECT job_id, epoch, min(m.first_step) AS first, max(m.last_step) AS last FROM step_metrics_1h AS m
WHERE job_id IN {job_ids:Array(String)} AND metric = {metric:String} AND rank = 0 GROUP BY job_id, epoch ORDER BY job_id, epoch
"""
# Only jobs with several attempts need the steps that a later one made anew taken out.
_CURVES = """
SELECT m.job_id AS job_id, intDiv(m.step, {width:UInt64}) * {width:UInt64} AS step,
    toUnixTimestamp64Milli(min(m.time)) AS time_ms, min(m.value) AS least, max(m.value) AS greatest, avg(m.value) AS mean
FROM step_metrics AS m
WHERE m.job_id IN {job_ids:Array(String)} AND m.metric = {metric:String} AND m.rank = 0 AND isFinite(m.value)
    AND m.step BETWEEN {low:UInt64} AND {high:UInt64}
    AND (m.job_id NOT IN {several:Array(String)}
        OR m.step < transform(concat(m.job_id, '/', toString(m.epoch)), {keys:Array(String)}, {ends:Array(UInt64)}, toUInt64(0)))
GROUP BY job_id, step ORDER BY job_id, step
"""


@router.get("")
async def compare(here: Here, principal: Viewer, job: Chosen) -> Json:
    """The runs with their figures (last, least and greatest of each metric), their names by what differs, parameters, the names of metrics,
    and where their configs differ."""
    runs = await visible_runs(here, principal, job)
    wanted = {"job_ids": [run["job_id"] for run in runs]}
    by_id: dict[str, dict[str, Any]] = {
        run["job_id"]: run | {"metrics": {}, "gpu_seconds": None, "stepping_gpu_seconds": None} for run in runs
    }
    for row in await here.reader.rows(LAST, wanted):
        by_id[row["job_id"]]["metrics"][row["metric"]] = {name: row[name] for name in ("last", "least", "greatest")}
    for row in await here.reader.rows(_USED, wanted):
        by_id[row["job_id"]].update(row)
    jobs = Counter(metric for run in by_id.values() for metric in run["metrics"])
    metrics = [{"metric": name, "jobs": count} for name, count in sorted(jobs.items(), key=lambda one: (-one[1], one[0]))[:_MOST_METRICS]]
    lines = joined(await configs(here.reader, by_id))
    own = {job_id: parameters(config) for job_id, config in lines.items()}
    names = names_of({run["job_id"]: run["name"] for run in runs}, own)
    answer = {"items": list(by_id.values()), "next_cursor": None, "metrics": metrics, "config": differences.differing(lines)}
    return Json(answer | {"names": names, "parameters": differences.by_path(own)})


@router.get("/curves")
async def curves(
    here: Here,
    principal: Viewer,
    job: Chosen,
    metric: MetricName,
    points: Annotated[int, Query(ge=10, le=2000, description="At most so many buckets of steps a run.")] = 400,
    from_step: Annotated[int, Query(ge=0, le=FOR_EVER)] = 0,
    to_step: Annotated[int, Query(ge=0, le=FOR_EVER)] = FOR_EVER,
    bands: Annotated[bool, Query(description="Whether buckets have their least and greatest value, beside the mean.")] = True,
) -> Json:
    """The curve of one metric of each run as columns, over the same buckets of steps; `step` is where a bucket begins, `time_ms` when."""
    runs = await visible_runs(here, principal, job)
    values: dict[str, Any] = {"job_ids": [run["job_id"] for run in runs], "metric": metric}
    epochs = await here.reader.rows(_EPOCHS, values)
    high = min(to_step, max((e["last"] for e in epochs), default=0))
    width = max(0, high - from_step) // points + 1
    rows = await here.reader.rows(_CURVES, values | {"width": width, "low": from_step, "high": high} | counted(epochs))
    found = {job_id: list(own) for job_id, own in groupby(rows, key=lambda row: row["job_id"])}
    columns = _COLUMNS if bands else [c for c in _COLUMNS if c not in _BANDS]
    items = [{"job_id": run["job_id"], **{c: [row[c] for row in found.get(run["job_id"], [])] for c in columns}} for run in runs]
    return Json({"items": items, "next_cursor": None, "metric": metric, "width": width})


def counted(epochs: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Valid steps of the jobs with several attempts: `keys` are job/epoch, `ends` the steps before which an attempt counts. Pure."""
    several, keys, ends = list[str](), list[str](), list[int]()
    for job_id, rows in groupby(epochs, key=lambda e: e["job_id"]):
        own = list(rows)
        if len(own) > 1:
            several.append(job_id)
            keys += [f"{job_id}/{e['epoch']}" for e in own]
            ends += counted_until(own)
    return {"several": several, "keys": keys, "ends": ends}


async def visible_runs(here: Gateway, principal: Principal, job_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The chosen jobs in the order in which they were named. Raises ProblemError 404 for one that is not there or not to be seen."""
    chosen = list(dict.fromkeys(job_ids))
    where = Where()
    where.among("job_id", chosen)
    where.visible(principal)
    found = {row["job_id"]: row for row in await here.reader.rows(f"SELECT {COLUMNS} FROM jobs WHERE {where.text}", where.values)}
    for job_id in chosen:
        if job_id not in found:
            raise not_found(f"job {job_id}")
    runs = [found[job_id] for job_id in chosen]
    await redacted(here.reader, principal, runs, ("reason",))
    return runs
