"""The story of a job: its events, why it waits, its attempts, ranks and checkpoints.

Holds: a job that its asker may not see has no story; texts name no such job.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request

from trainhouse.checkpointing.chain.references import USED_BY, references
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.code import asked, tags_store_of
from trainhouse.gateway.routes.jobs import JobPath, Text, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"], dependencies=[After])

Epoch = Annotated[int | None, Query(ge=0, le=2**32 - 1, description="Only of this attempt's fence.")]

MAX_TAGS = 1000

_EVENTS = "time, type, event_id, node_id, epoch, summary, json, source_topic, source_partition, source_offset"
_EXPLAINED = (
    "at, pool, team, place, waiting, waiting_since, needs, obstacle, text, refusals, unblock, score, score_priority, score_wait_bonus, "
    "score_over_share_penalty, reserved_start, eta, eta_from, json"
)


def of_job(job_id: str) -> Where:
    """Only of one job, which was found visible."""
    where = Where()
    where.equal("job_id", job_id)
    return where


@router.get("/{job_id}/events")
async def events(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    type: Annotated[str | None, Query(max_length=128, description="Only types that contain this.")] = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> Json:
    """Event history of a job, oldest first: time, type, a one-line summary, and the whole event."""
    await visible_job(here, principal, job_id)
    where = of_job(job_id)
    if type is not None:
        where.add("position(type, {part:String}) > 0", part=type)
    order = Order((millis("time"), ("length(event_id)", "UInt64"), ("event_id", "String")))
    found = await page(here.reader, _EVENTS, "events", where, order, limit, cursor)
    await redacted(here.reader, principal, found.rows, ("summary", "json"))
    for row in found.rows:
        row["event"] = _parsed(row.pop("json"))
    return Json(found.answer())


@router.get("/{job_id}/explain")
async def explain(job_id: JobPath, here: Here, principal: Viewer, limit: Limit = 20, cursor: Cursor = None) -> Json:
    """Explanations of a job's waiting, the newest first, with its state and the state's own reason."""
    job = await visible_job(here, principal, job_id)
    found = await page(here.reader, _EXPLAINED, "explanations", of_job(job_id), Order((millis("at"),), descending=True), limit, cursor)
    await redacted(here.reader, principal, found.rows, ("text", "needs", "refusals", "unblock", "eta_from", "json"))
    for row in found.rows:
        row["event"] = _parsed(row.pop("json"))
    return Json(found.answer(state=job["state"], reason=job["reason"]))


@router.get("/{job_id}/attempts")
async def attempts(job_id: JobPath, here: Here, principal: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Json:
    """The attempts of a job, oldest first."""
    await visible_job(here, principal, job_id)
    columns = (
        "epoch, attempt, pool, world_size, nodes, nodes_started, nodes_stopped, ranks_succeeded, ranks_failed, state, reason, warm, "
        "allocated_at, started_at, released_at, stopped_at"
    )
    found = await page(here.reader, columns, "attempts", of_job(job_id), Order((("toInt64(epoch)", "Int64"),)), limit, cursor)
    await redacted(here.reader, principal, found.rows, ("reason",))
    return Json(found.answer())


@router.get("/{job_id}/ranks")
async def ranks(job_id: JobPath, here: Here, principal: Viewer, epoch: Epoch = None, limit: Limit = 1000, cursor: Cursor = None) -> Json:
    """Placement and activity of a job's ranks; the newest attempt's first."""
    await visible_job(here, principal, job_id)
    where = of_job(job_id)
    where.equal("epoch", epoch, "UInt32")
    columns = (
        "epoch, rank, attempt, node_id, device_id, state, last_heartbeat_at, pid, step, step_at, step_time_ms, data_wait_s, save_stall_s, "
        "exit_code, signal, reason"
    )
    order = Order((("-toInt64(epoch)", "Int64"), ("toInt64(rank)", "Int64")))
    return Json((await page(here.reader, columns, "ranks", where, order, limit, cursor)).answer())


@router.get("/{job_id}/checkpoints")
async def checkpoints(
    job_id: JobPath, here: Here, principal: Viewer, state: Text = None, limit: Limit = 100, cursor: Cursor = None
) -> Json:
    """The checkpoints of a job, the newest first; those that retention removed are PRUNED, those that a person did DELETED."""
    await visible_job(here, principal, job_id)
    where = of_job(job_id)
    where.equal("state", state)
    columns = (
        "commit, step, attempt, epoch, state, uri, bytes_total, bytes_new, stage_s, upload_s, world_size, completed_at, pruned_at, "
        "restores, memory_nodes, deleted_at, deleted_by"
    )
    order = Order((("toInt64(commit)", "Int64"),), descending=True)
    return Json((await page(here.reader, columns, "checkpoints", where, order, limit, cursor)).answer())


@router.get("/{job_id}/checkpoint-tags")
async def checkpoint_tags(job_id: JobPath, request: Request, here: Here, principal: Viewer) -> Json:
    """Names that keep checkpoints of a job beyond its retention: tags, and `used-by:JOB` of each job that began from one."""
    await visible_job(here, principal, job_id)
    found = await asked(references, tags_store_of(request), job_id)
    rows: list[dict[str, Any]] = found.rows[:MAX_TAGS]
    # A job's name by itself: as a part of a longer word it is not seen.
    users = [row | {"name": name.removeprefix(USED_BY)} for row in rows if (name := str(row["name"])).startswith(USED_BY)]
    rows = [row for row in rows if not str(row["name"]).startswith(USED_BY)]
    await redacted(here.reader, principal, users, ("name",))
    rows += [row | {"name": f"{USED_BY}{row['name']}"} for row in users]
    return Json({"items": rows, "next_cursor": None})


def _parsed(text: str) -> Any:
    """An event that was kept as JSON; None where the story tells more than one event has."""
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None
