"""Columns of lists of jobs that people choose: parameters, and last and best values of metrics.

Holds: values of jobs that the caller may not see are left out; a metric is rank 0's; a value that is no number is null.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.runs.run_parameters import typed
from trainhouse.gateway.runs.tag_routes import of_visible

router = APIRouter(prefix="/v1/runs", tags=["jobs"])

MOST_COLUMNS = 20
MOST_NAMES = 1000
MOST_VALUES = 200_000
Names = Annotated[
    list[Annotated[str, Query(min_length=1, max_length=256)]] | None, Query(max_length=MOST_COLUMNS, description="Names; may be repeated.")
]


@router.get("/columns")
async def columns(here: Here, principal: Viewer) -> Json:
    """Names of all parameters and metrics of the caller's jobs, with the number of jobs that have each, the most frequent first."""
    values: dict[str, Any] = {}
    logged = _where(principal, values)
    sql = (
        f"SELECT name, uniqExact(job_id) AS jobs FROM (SELECT key AS name, job_id FROM parameters WHERE {logged} UNION ALL "
        "SELECT arrayJoin(JSONExtractKeys(json, 'hyperparameters')) AS name, job_id FROM job_specs "
        f"WHERE {logged}) GROUP BY name ORDER BY jobs DESC, name LIMIT {MOST_NAMES}"
    )
    parameters = await here.reader.rows(sql, values)
    sql = (
        "SELECT toString(metric) AS name, uniqExact(job_id) AS jobs FROM metric_latest_rows "
        f"WHERE rank = 0 AND {logged} GROUP BY name ORDER BY jobs DESC, name LIMIT {MOST_NAMES}"
    )
    return Json({"parameters": parameters, "metrics": await here.reader.rows(sql, values)})


@router.get("/values")
async def values_of(here: Here, principal: Viewer, parameter: Names = None, metric: Names = None) -> Json:
    """Values by job: `parameters` is {name: {job: value}}, `metrics` is {name: {job: [last, least, greatest]}}."""
    found: dict[str, dict[str, dict[str, Any]]] = {
        "parameters": {name: {} for name in parameter or ()},
        "metrics": {name: {} for name in metric or ()},
    }
    if parameter:
        values: dict[str, Any] = {"names": parameter}
        visible = _where(principal, values)
        of_spec = (
            "SELECT job_id, name, JSONExtractRaw(json, 'hyperparameters', name) AS raw "
            f"FROM job_specs ARRAY JOIN {{names:Array(String)}} AS name WHERE {visible} AND raw != '' LIMIT {MOST_VALUES}"
        )
        logged = f"SELECT job_id, key, value FROM parameters WHERE key IN {{names:Array(String)}} AND {visible} LIMIT {MOST_VALUES}"
        for row in await here.reader.rows(logged, values):
            found["parameters"][row["key"]][row["job_id"]] = typed(row["value"])
        for row in await here.reader.rows(of_spec, values):
            found["parameters"][row["name"]][row["job_id"]] = typed(orjson.loads(row["raw"]))
    if metric:
        values = {"names": metric}
        visible = _where(principal, values)
        last = (
            "SELECT job_id, toString(metric) AS name, value, min_value, max_value FROM metric_latest "
            f"WHERE rank = 0 AND metric IN {{names:Array(String)}} AND {visible} LIMIT {MOST_VALUES}"
        )
        for row in await here.reader.rows(last, values):
            found["metrics"][row["name"]][row["job_id"]] = [row["value"], row["min_value"], row["max_value"]]
    return Json(found)


def _where(principal: Principal, values: dict[str, Any]) -> str:
    where = Where()
    of_visible(where, principal)
    values |= where.values
    return where.text
