"""Parts of one job that views hold: its states over time, the ledger of its device time, its config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from fastapi import APIRouter

from trainhouse.gateway import differences
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"])

_SPANS = """
SELECT attempt, epoch, node_id, kind, span, began_at, ended_at, duration_s, reason FROM gang_timeline
WHERE job_id = {job_id:String} ORDER BY began_at, kind, node_id LIMIT 10000
"""
_LEDGER = """
SELECT category, sum(g.gpu_seconds) AS gpu_seconds FROM gpu_seconds AS g
WHERE job_id = {job_id:String} GROUP BY category ORDER BY gpu_seconds DESC
"""
_ARTIFACTS = """
SELECT action, name, sha256, kind, project, size_bytes, files, at FROM job_artifacts
WHERE job_id = {job_id:String} ORDER BY action, name, at, sha256 LIMIT 10000
"""
_SPECS = """
SELECT job_id, json FROM job_specs WHERE job_id IN {job_ids:Array(String)}
"""
_PARAMETERS = """
SELECT job_id, key, value FROM parameters WHERE job_id IN {job_ids:Array(String)} ORDER BY job_id, key LIMIT 100000
"""


@router.get("/{job_id}/timeline")
async def timeline(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Timeline of the job and of each attempt's part on a node, with start and end: kind `state`, `part` or `hang`."""
    await visible_job(here, principal, job_id)
    rows = await here.reader.rows(_SPANS, {"job_id": job_id})
    await redacted(here.reader, principal, rows, ("reason",))
    return Json({"items": rows, "next_cursor": None})


@router.get("/{job_id}/gpu-seconds")
async def gpu_seconds(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """The ledger of the job's device time: seconds by what they went into; `unknown` where nothing tells."""
    await visible_job(here, principal, job_id)
    return Json({"items": await here.reader.rows(_LEDGER, {"job_id": job_id}), "next_cursor": None})


@router.get("/{job_id}/artifacts")
async def artifacts(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Versions of artifacts that the job stored, and those that its ranks used: their name, hash, kind and size."""
    await visible_job(here, principal, job_id)
    return Json({"items": await here.reader.rows(_ARTIFACTS, {"job_id": job_id}), "next_cursor": None})


@router.get("/{job_id}/config")
async def config(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Submitted spec and logged parameters of a job, as lines: a dotted path and a value."""
    await visible_job(here, principal, job_id)
    found = (await configs(here.reader, [job_id]))[job_id]
    return Json({"items": [{"path": path, "value": value} for path, value in found.items()], "next_cursor": None})


async def configs(reader: SqlReader, job_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The config of each job as lines; empty where nothing is known of it."""
    wanted = {"job_ids": list(job_ids)}
    found: dict[str, dict[str, Any]] = {job_id: {} for job_id in wanted["job_ids"]}
    for row in await reader.rows(_SPECS, wanted):
        found[row["job_id"]] |= differences.lines(orjson.loads(row["json"]))
    for row in await reader.rows(_PARAMETERS, wanted):
        found[row["job_id"]][f"parameters.{row['key']}"] = row["value"]
    return found
