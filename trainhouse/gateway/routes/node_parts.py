"""Parts of one node: its devices, the gangs that were on it, what was said of it.

Holds: a gang or verdict of a job that its asker may not see is left out; that a device is held is told to everybody.
"""

from __future__ import annotations

from fastapi import APIRouter

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.fleet_nodes import Name

router = APIRouter(prefix="/v1/nodes", tags=["fleet"])

MOST = 200
_DEVICES = """
SELECT device_id, device_index, device_type, memory_bytes, state, closed, {job} AS job_id, rank, utilization_pct, memory_used_bytes,
    temperature_c, power_w, sm_clock_mhz, ecc_corrected, ecc_uncorrected, throttled, last_heartbeat_at
FROM devices WHERE node_id = {{node_id:String}} ORDER BY device_index, device_id
"""
_GANGS = """
SELECT job_id, epoch, attempt, first_rank, devices, allocated_at, released_at, freed_at, reason
FROM allocations WHERE node_id = {{node_id:String}} AND {where} ORDER BY allocated_at DESC, job_id LIMIT {{limit:UInt32}}
"""
_VERDICTS = """
SELECT at, event_id, type, job_id, rank, device_id, category, summary, evidence, restriction
FROM verdicts WHERE node_id = {{node_id:String}} AND {where} ORDER BY at DESC, event_id LIMIT {{limit:UInt32}}
"""
_SEEN = "(SELECT job_id FROM jobs WHERE project IN {visible_projects:Array(String)})"


@router.get("/{node_id}/devices")
async def devices(node_id: Name, here: Here, principal: Viewer) -> Json:
    """The devices of a node, with the driver's newest figures; null where it tells none."""
    await _known(here, node_id)
    job = "job_id" if principal.everywhere else f"if(job_id IN {_SEEN}, job_id, '')"
    rows = await here.reader.rows(_DEVICES.format(job=job), {"node_id": node_id} | _seen(principal).values)
    await redacted(here.reader, principal, rows, ("closed",))
    return Json({"items": rows, "next_cursor": None})


@router.get("/{node_id}/gangs")
async def gangs(node_id: Name, here: Here, principal: Viewer) -> Json:
    """The gangs on a node, the newest first."""
    await _known(here, node_id)
    where = _seen(principal)
    rows = await here.reader.rows(_GANGS.format(where=where.text), where.values | {"node_id": node_id, "limit": MOST})
    await redacted(here.reader, principal, rows, ("reason",))
    return Json({"items": rows, "next_cursor": None})


@router.get("/{node_id}/verdicts")
async def verdicts(node_id: Name, here: Here, principal: Viewer) -> Json:
    """What the detector and people said of a node, the newest first."""
    await _known(here, node_id)
    where = _seen(principal, "job_id = '' OR ")
    rows = await here.reader.rows(_VERDICTS.format(where=where.text), where.values | {"node_id": node_id, "limit": MOST})
    await redacted(here.reader, principal, rows, ("summary", "evidence"))
    return Json({"items": rows, "next_cursor": None})


def _seen(principal: Principal, or_else: str = "") -> Where:
    """Only rows of jobs of the caller's projects."""
    where = Where()
    if not principal.everywhere:
        where.add(f"({or_else}job_id IN {_SEEN})", visible_projects=list(principal.projects))
    return where


async def _known(here: Gateway, node_id: str) -> None:
    if await here.reader.one("SELECT 1 AS known FROM node_facts WHERE node_id = {node_id:String} LIMIT 1", {"node_id": node_id}) is None:
        raise not_found(f"node {node_id}")
