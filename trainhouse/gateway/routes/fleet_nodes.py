"""Nodes with their devices, gangs and verdicts; pools; alerts.

Holds: every holder of a token sees the whole fleet, and that a device is held; gangs, verdicts and alerts of jobs that the caller may not
see are left out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.fleet.alert_causes import COLUMNS, OWN_ALERTS
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.jobs import Text

router = APIRouter(prefix="/v1", tags=["fleet"])

Name = Annotated[str, Path(max_length=128)]

_NODES = (
    "node_id, pool, state, restriction, restriction_reason, restricted_by, boot_id, address, device_type, devices, cpus, memory_bytes, "
    "labels, ranks_running, spool_lag_bytes, lost_reason, registered_at, last_heartbeat_at, lost_at"
)
# A quarantine's reason tells of the jobs that failed on the node.
_TEXTS = ("restriction_reason", "lost_reason")
_POOLS = "pool, partition, created_at, nodes, nodes_alive, nodes_closed, devices, policy, policy_version, policy_user, policy_applied_at"
MOST_PARTS = 200
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


class AlertState(StrEnum):
    """Whether an alert goes on."""

    OPEN = "OPEN"
    RESOLVED = "RESOLVED"


@router.get("/nodes")
async def nodes(here: Here, principal: Viewer, pool: Text = None, state: Text = None, limit: Limit = 1000, cursor: Cursor = None) -> Json:
    """The nodes by name."""
    where = Where()
    where.equal("pool", pool)
    where.equal("state", state)
    found = await page(here.reader, _NODES, "nodes", where, Order((("node_id", "String"),)), limit, cursor)
    await redacted(here.reader, principal, found.rows, _TEXTS)
    return Json(found.answer())


@router.get("/nodes/{node_id}")
async def node(node_id: Name, here: Here, principal: Viewer) -> Json:
    """One node."""
    found = await here.reader.one(f"SELECT {_NODES} FROM nodes WHERE node_id = {{node_id:String}}", {"node_id": node_id})
    if found is None:
        raise not_found(f"node {node_id}")
    await redacted(here.reader, principal, [found], _TEXTS)
    return Json(found)


@router.get("/pools")
async def pools(here: Here, _: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Json:
    """The pools by name, with the policy that decides about each."""
    return Json((await page(here.reader, _POOLS, "pools", Where(), Order((("pool", "String"),)), limit, cursor)).answer())


@router.get("/pools/{pool}")
async def pool(pool: Name, here: Here, _: Viewer) -> Json:
    """One pool, and the text of its policy."""
    found = await here.reader.one(f"SELECT {_POOLS} FROM pools WHERE pool = {{pool:String}}", {"pool": pool})
    if found is None:
        raise not_found(f"pool {pool}")
    policy = await here.reader.one("SELECT text FROM policies WHERE pool = {pool:String} ORDER BY version DESC LIMIT 1", {"pool": pool})
    return Json(found | {"policy_text": policy["text"] if policy else None})


@router.get("/alerts")
async def alerts(
    here: Here, principal: Viewer, state: AlertState | None = None, rule: Text = None, limit: Limit = 100, cursor: Cursor = None
) -> Json:
    """Alerts, those that fired last first."""
    where = Where()
    where.equal("state", state.value if state else None)
    where.equal("rule", rule)
    if not principal.everywhere:
        where.add(f"({OWN_ALERTS})", visible_projects=list(principal.projects))
    order = Order((millis("since"), ("rule", "String"), ("key", "String")), descending=True)
    found = await page(here.reader, COLUMNS, "alerts", where, order, limit, cursor)
    await redacted(here.reader, principal, found.rows, ("summary", "key"))
    return Json(found.answer())


@router.get("/nodes/{node_id}/devices")
async def devices(node_id: Name, here: Here, principal: Viewer) -> Json:
    """The devices of a node, with the driver's newest figures; null where it tells none."""
    await _known(here, node_id)
    job = "job_id" if principal.everywhere else f"if(job_id IN {_SEEN}, job_id, '')"
    rows = await here.reader.rows(_DEVICES.format(job=job), {"node_id": node_id} | _seen(principal).values)
    await redacted(here.reader, principal, rows, ("closed",))
    return Json({"items": rows, "next_cursor": None})


@router.get("/nodes/{node_id}/gangs")
async def gangs(node_id: Name, here: Here, principal: Viewer) -> Json:
    """The gangs on a node, the newest first."""
    await _known(here, node_id)
    where = _seen(principal)
    rows = await here.reader.rows(_GANGS.format(where=where.text), where.values | {"node_id": node_id, "limit": MOST_PARTS})
    await redacted(here.reader, principal, rows, ("reason",))
    return Json({"items": rows, "next_cursor": None})


@router.get("/nodes/{node_id}/verdicts")
async def verdicts(node_id: Name, here: Here, principal: Viewer) -> Json:
    """Verdicts on a node, by the detector and by people, the newest first."""
    await _known(here, node_id)
    where = _seen(principal, "job_id = '' OR ")
    rows = await here.reader.rows(_VERDICTS.format(where=where.text), where.values | {"node_id": node_id, "limit": MOST_PARTS})
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
