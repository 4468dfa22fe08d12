"""The fleet at one glance: every device by state, and who waits for what.

Holds: a device's state is what its node and the gang on it are; whose gang that is, is not told, so any viewer may look.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, page
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1", tags=["fleet"])

FREE, STARTING, RUNNING, SAVING, CLOSED, DOUBTED, LOST = "F", "S", "R", "C", "X", "D", "L"
LETTERS = {FREE: "free", STARTING: "starting", RUNNING: "running", SAVING: "saving", CLOSED: "closed", DOUBTED: "suspected", LOST: "lost"}

_NODES = """
SELECT n.node_id AS node_id, n.pool AS pool, n.state AS state, n.restriction AS restriction, n.device_type AS device_type,
    n.devices AS devices, h.held AS held
FROM nodes AS n
LEFT JOIN (
    SELECT a.node_id AS node_id, groupArray((ifNull(j.state, ''), toUInt32(a.devices))) AS held
    FROM (SELECT node_id, job_id, devices, first_rank FROM allocations WHERE freed_at IS NULL ORDER BY node_id, job_id, first_rank) AS a
    LEFT JOIN (SELECT job_id, state FROM jobs_rows FINAL WHERE state != 'REJECTED') AS j ON j.job_id = a.job_id
    GROUP BY a.node_id
) AS h ON h.node_id = n.node_id
WHERE {where}
ORDER BY pool, node_id
"""

# Explanations are of different moments: jobs before one may have begun since, so places are counted among those that wait now.
_QUEUE = """
SELECT j.job_id AS job_id, j.name AS name, j.project AS project, j.team AS team, j.user AS user, j.pool AS pool, j.priority AS priority,
    j.world_size AS world_size, j.attempt AS attempt, coalesce(w.since, j.submitted_at, j.updated_at) AS waiting_since,
    ifNull(w.place, 0) AS place, ifNull(w.obstacle, '') AS obstacle, if(w.text = '', j.reason, w.text) AS text, w.unblock AS unblock,
    w.reserved_start AS reserved_start, w.eta AS eta
FROM (SELECT * FROM jobs WHERE state = 'PENDING') AS j
LEFT JOIN (
    SELECT job_id, if(place = 0, 0, row_number() OVER (PARTITION BY pool ORDER BY place = 0, place, job_id)) AS place,
        toNullable(waiting_since) AS since, obstacle, text, unblock, reserved_start, eta
    FROM why WHERE job_id IN (SELECT job_id FROM jobs WHERE state = 'PENDING')
) AS w ON w.job_id = j.job_id
"""
_PLACES = Order((("pool", "String"), ("place", "UInt64"), ("job_id", "String")))


@router.get("/devices")
async def devices(here: Here, _: Viewer, pool: Annotated[str | None, Query(max_length=128)] = None) -> Json:
    """Every node with one letter a device: free F, starting S, running R, saving C, closed X, suspected D, lost L."""
    where = Where()
    where.equal("pool", pool)
    rows = await here.reader.rows(_NODES.format(where=where.text), where.values)
    counts = dict.fromkeys(LETTERS, 0)
    for row in rows:
        row["letters"] = letters(row["state"], row["restriction"], row["devices"] or 0, row.pop("held"))
        for letter in row["letters"]:
            counts[letter] += 1
    return Json({"items": rows, "next_cursor": None, "counts": {LETTERS[k]: n for k, n in counts.items()}})


def letters(state: str, restriction: str, devices: int, held: list[list[Any]]) -> str:
    """The devices of a node, those in use first. Pure; `held` is (state of the job, devices) of each gang on the node."""
    if state == "LOST":
        return LOST * devices
    used = "".join(_of_job(job) * count for job, count in held)[:devices]
    if state == "SUSPECTED":
        return DOUBTED * devices
    rest = CLOSED if restriction not in ("", "NONE") else FREE
    return used + rest * (devices - len(used))


def _of_job(state: str) -> str:
    if state in ("SCHEDULED", "INITIALIZING"):
        return STARTING
    return SAVING if state in ("CHECKPOINTING", "PREEMPTED") else RUNNING


@router.get("/queue")
async def queue(
    here: Here,
    principal: Viewer,
    pool: Annotated[str | None, Query(max_length=128)] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Waiting jobs in queue order, each with its reason and the changes that would unblock it."""
    where = Where()
    where.visible(principal)
    where.equal("pool", pool)
    found = await page(here.reader, "*", f"({_QUEUE})", where, _PLACES, limit, cursor)
    await redacted(here.reader, principal, found.rows, ("text", "unblock"))
    return Json(found.answer())
