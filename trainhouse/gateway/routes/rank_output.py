"""Output of a job's ranks: log lines and metrics.

Holds: a page of lines reads downward whichever way one pages; every point of a metric can be had, page by page, as Arrow.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.wire.envelope import from_rfc3339
from trainhouse.events.wire.topics import LOGS, POINT_TOPICS
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here, now_ms
from trainhouse.gateway.queries import cursors
from trainhouse.gateway.queries.freshness import freshness_of
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.routes.curves import MetricName
from trainhouse.gateway.routes.job_timeline import Epoch, of_job
from trainhouse.gateway.routes.jobs import JobPath, visible_job

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[After])

Rank = Annotated[int | None, Query(ge=0, le=2**32 - 1)]
POINTS = 100_000
# A job's points are on the brokers before its end is told; so much later the projections have them, unless they are far behind.
SETTLED_MS = 60_000
ARROW = "application/vnd.apache.arrow.stream"


class Level(StrEnum):
    """Levels by the text of a line itself: programs log in many formats, but name the level or the exception."""

    ERROR = "error"
    WARNING = "warning"


_GRAVE = "error|exception|critical|fatal|traceback"
LEVELS = {Level.ERROR: rf"(?i)({_GRAVE})\b", Level.WARNING: rf"(?i)({_GRAVE}|warning|warn)\b"}
_LINES = "time, epoch, attempt, rank, stream, offset, line, node_id"
_READ = (("source_offset", "UInt64"), ("offset", "UInt64"), ("toUInt64(rank)", "UInt64"))
_POINTS = """
SELECT metric, epoch, attempt, rank, step, time, value FROM step_metrics WHERE {where} {order} LIMIT {{limit:UInt32}} WITH TIES
"""
# The table's own order, so that a page reads what it gives; points that have all of it in common come on one page.
_ORDER = Order((("metric", "String"), ("epoch", "UInt64"), ("rank", "UInt64"), ("step", "UInt64"), millis("time")))
_METRICS = """
SELECT metric, argMax(m.value, (m.epoch, m.step, -toInt64(m.rank))) AS value, max(m.step) AS step, max(m.time) AS at,
    argMax(m.rank, (m.epoch, m.step, -toInt64(m.rank))) AS rank, uniq(m.rank) AS ranks, count() AS points
FROM step_metrics AS m WHERE {where} GROUP BY metric ORDER BY metric LIMIT {{limit:UInt32}}
"""


class Way(StrEnum):
    """Paging direction: `newest` begins with the last lines, `oldest` with the first."""

    NEWEST = "newest"
    OLDEST = "oldest"


class Stream(StrEnum):
    """Output stream of a rank, or its Python stack at the time its gang was found to hang."""

    STDOUT = "stdout"
    STDERR = "stderr"
    STACKS = "stacks"


@router.get("/{job_id}/logs")
async def logs(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    request: Request,
    rank: Rank = None,
    epoch: Epoch = None,
    attempt: Annotated[int | None, Query(ge=0, le=2**32 - 1)] = None,
    stream: Stream | None = None,
    search: Annotated[str | None, Query(max_length=256, description="Only lines that contain this, in any case.")] = None,
    level: Annotated[Level | None, Query(description="Only lines whose text names this level or a graver one.")] = None,
    way: Annotated[Way, Query(alias="from")] = Way.NEWEST,
    limit: Limit = 1000,
    cursor: Cursor = None,
    caught_up: Annotated[
        bool, Query(description="Answer when the lines are there that the brokers hold now: of a job that has ended, all of them.")
    ] = False,
) -> Json:
    """Lines in the order in which they were read: the newest ones, and older ones by cursor; or from the first one on."""
    await visible_job(here, principal, job_id)
    if caught_up and here.kafka is not None:
        await _caught_up(request, LOGS)
    where = of_job(job_id)
    for column, wanted in (("rank", rank), ("epoch", epoch), ("attempt", attempt)):
        where.equal(column, wanted, "UInt32")
    where.equal("stream", stream.value if stream else None)
    if stream is None:
        where.add("stream != {stacks:String}", stacks=Stream.STACKS.value)
    if search:
        where.add("positionCaseInsensitiveUTF8(line, {search:String}) > 0", search=search)
    if level:
        where.add("match(line, {level:String})", level=LEVELS[level])
    found = await page(here.reader, _LINES, "logs", where, Order(_READ, descending=way is Way.NEWEST), limit, cursor)
    if way is Way.NEWEST:
        found.rows.reverse()
    return Json(found.answer())


@router.get("/{job_id}/metrics")
async def metrics(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    metric: Annotated[list[MetricName] | None, Query(max_length=100, description="Only these.")] = None,
    limit: Limit = 1000,
) -> Json:
    """The names of a job's metrics, each with its last value: of the lowest rank that has the newest step."""
    await visible_job(here, principal, job_id)
    where = of_job(job_id)
    where.among("metric", metric or ())
    rows = await here.reader.rows(_METRICS.format(where=where.text), where.values | {"limit": limit})
    return Json({"items": rows, "next_cursor": None})


@router.get("/{job_id}/points", response_class=Response, responses={200: {"content": {ARROW: {}}, "description": "An Arrow stream."}})
async def points(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    request: Request,
    metric: Annotated[list[MetricName] | None, Query(max_length=100)] = None,
    rank: Rank = None,
    cursor: Cursor = None,
) -> Response:
    """Every point of some metrics, or of all, as an Arrow stream; the header X-Next-Cursor asks for the next part."""
    job = await visible_job(here, principal, job_id)
    if cursor is None and here.kafka is not None and grows(job, now_ms()):
        await _caught_up(request, *POINT_TOPICS)
    where = of_job(job_id)
    where.among("metric", metric or ())
    where.equal("rank", rank, "UInt32")
    if cursor is not None:
        _ORDER.behind(cursor, where)
    sql = _POINTS.format(where=where.text, order=_ORDER.clause())
    body = await here.reader.raw(sql, where.values | {"limit": POINTS}, default_format="ArrowStream")
    behind = await asyncio.to_thread(_behind, body)
    return Response(body, headers={} if behind is None else {"X-Next-Cursor": behind}, media_type=ARROW)


def grows(job: Row, at_ms: int) -> bool:
    """Whether points of a job may still be on their way: it goes on, or has just ended. Pure."""
    return job["finished_at"] is None or from_rfc3339(job["finished_at"]) > at_ms - SETTLED_MS


async def _caught_up(request: Request, *asked: str) -> None:
    """Waits until the answer includes the brokers' present records; after a timeout, answers with the known ones."""
    try:
        await freshness_of(request).reached(*asked)
    except BusUnavailableError as error:
        log.warning("rows are answered as far as they are known", topics=asked, error=str(error))


def _behind(body: bytes) -> str | None:
    """The cursor behind an answer's last point; None for an answer that is not full."""
    if not body:
        return None
    import pyarrow  # by the first who asks for points: it would be a tenth of the gateway's start

    table = pyarrow.ipc.open_stream(body).read_all()
    if table.num_rows < POINTS:
        return None
    last = table.slice(table.num_rows - 1)
    key = [last[name][0].as_py() for name in ("metric", "epoch", "rank", "step")]
    return cursors.encode([*key, last["time"].cast("int64")[0].as_py()])
