"""Lineage of a thing, up and down, over every kind of edge.

Holds: an edge of another project is as if it were not there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.where_clauses import Where

router = APIRouter(prefix="/v1", tags=["lineage"])

MOST_EDGES = 5000
Thing = Annotated[
    str,
    Query(
        min_length=3,
        max_length=1024,
        pattern=r"^[a-z][a-z0-9_-]*:",
        description="job:ID, attempt:JOB/EPOCH (attempt N has epoch N + 1), "
        "checkpoint:JOB@COMMIT, code:SHA256, environment:HASH, data:URI or artifact:URI.",
    ),
]
_WALKS = {"from": "lineage_to", "led_to": "lineage_of"}


@router.get("/lineage")
async def lineage(here: Here, principal: Viewer, id: Thing, way: Literal["from", "led_to", "both"] = "both") -> Json:
    """The edges around a thing: those that it came from, those that it led to, or both; the nearest first."""
    where = Where()
    where.visible(principal)
    items = []
    for name, view in _WALKS.items():
        if way in (name, "both"):
            sql = f"SELECT from_id, to_id, kind, distance, at, job_id FROM {view}(id = {{id:String}}) WHERE {where.text}"
            order = " ORDER BY distance, from_id, to_id, kind LIMIT {limit:UInt32}"
            rows = await here.reader.rows(sql + order, where.values | {"id": id, "limit": MOST_EDGES})
            items += [row | {"way": name} for row in rows]
    return Json({"items": items, "next_cursor": None})
