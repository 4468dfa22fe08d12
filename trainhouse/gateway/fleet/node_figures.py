"""Figures that nodes measure of their devices: now, of all nodes; over time, of those that are looked at.

Holds: what no driver reports is null, never 0; a question about the past names its nodes, since device_minutes is ordered by node, and all
nodes of a large fleet would be billions of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here

router = APIRouter(prefix="/v1/fleet", tags=["fleet"])

MOST_NODES = 100
MOST_PARTS = 400
Name = Annotated[str, Query(min_length=1, max_length=256)]


class Metric(StrEnum):
    """A measured figure: mean use of the devices (%), most memory used on one (%), the highest temperature (°C)."""

    UTILIZATION = "utilization"
    MEMORY = "memory"
    TEMPERATURE = "temperature"


_NOW = """
SELECT f.node_id AS node_id, avgIf(f.utilization_pct, f.fact = 'beat' AND f.utilization_pct IS NOT NULL) AS utilization_pct,
    100 * sumIf(f.memory_used_bytes, f.fact = 'beat' AND f.memory_used_bytes IS NOT NULL)
        / nullIf(if(countIf(f.fact = 'beat' AND f.memory_used_bytes IS NOT NULL) = 0, 0,
            sumIf(f.memory_bytes, f.fact = 'registered')), 0) AS memory_pct,
    maxIf(f.temperature_c, f.fact = 'beat') AS temperature_c, toUInt32(countIf(f.fact = 'registered')) AS devices
FROM device_facts AS f FINAL GROUP BY f.node_id ORDER BY f.node_id
"""
_VALUES = {
    Metric.UTILIZATION: "avg(m.utilization_pct)",
    Metric.MEMORY: "100 * max(m.max_memory_used_bytes / nullIf(d.memory_bytes, 0))",
    Metric.TEMPERATURE: "max(m.max_temperature_c)",
}
_HISTORY = """
SELECT m.node_id AS node_id, intDiv(toUnixTimestamp(m.minute) - {{since:UInt32}}, {{part_s:UInt32}}) AS part, {value} AS value
FROM (
    SELECT node_id, device_id, minute, utilization_pct, max_memory_used_bytes, max_temperature_c FROM device_minutes
    WHERE node_id IN {{nodes:Array(String)}}
        AND minute >= toDateTime({{since:UInt32}}, 'UTC') AND minute < toDateTime({{until:UInt32}}, 'UTC')
) AS m
LEFT JOIN (
    SELECT node_id, device_id, memory_bytes FROM device_facts FINAL
    WHERE fact = 'registered' AND node_id IN {{nodes:Array(String)}}
) AS d ON d.node_id = m.node_id AND d.device_id = m.device_id
GROUP BY node_id, part ORDER BY node_id, part
"""


@router.get("/figures")
async def figures(here: Here, _: Viewer) -> Json:
    """Each node's newest figures: mean use of its devices, memory used on them, highest temperature; null: no driver reports it."""
    return Json({"items": await here.reader.rows(_NOW), "next_cursor": None})


@router.get("/history")
async def history(
    here: Here,
    _: Viewer,
    node: Annotated[list[Name], Query(min_length=1, max_length=MOST_NODES, description="Nodes by name.")],
    metric: Metric = Metric.UTILIZATION,
    hours: Annotated[int, Query(ge=1, le=720, description="So many hours up to now.")] = 6,
    parts: Annotated[int, Query(ge=2, le=MOST_PARTS, description="So many equal parts of them.")] = 72,
) -> Json:
    """One figure of some nodes over time: `starts` has where each part begins, an item a value for each; null: not reported."""
    since_s, part_s = span(int(datetime.now(UTC).timestamp()), hours, parts)
    nodes = list(dict.fromkeys(node))
    values = {"nodes": nodes, "since": since_s, "until": since_s + part_s * parts, "part_s": part_s}
    rows = await here.reader.rows(_HISTORY.format(value=_VALUES[metric]), values)
    starts = [datetime.fromtimestamp(since_s + n * part_s, UTC).isoformat().replace("+00:00", "Z") for n in range(parts)]
    return Json({"items": rows_of(nodes, rows, parts), "starts": starts, "part_s": part_s, "metric": metric.value})


def span(now_s: int, hours: int, parts: int) -> tuple[int, int]:
    """Beginning of the first part and length of a part, both in seconds; parts begin at whole minutes. Pure."""
    part_s = max(60, -(-hours * 3600 // parts // 60) * 60)
    end_s = -(-now_s // part_s) * part_s
    return end_s - part_s * parts, part_s


def rows_of(nodes: Sequence[str], rows: Sequence[dict[str, Any]], parts: int) -> list[dict[str, Any]]:
    """A row a node, in the order asked for, with a value or null for each part. Pure."""
    found: dict[str, list[float | None]] = {name: [None] * parts for name in nodes}
    for row in rows:
        if row["value"] is not None and 0 <= row["part"] < parts:
            found[row["node_id"]][row["part"]] = round(float(row["value"]), 1)
    return [{"node_id": name, "values": values} for name, values in found.items()]
