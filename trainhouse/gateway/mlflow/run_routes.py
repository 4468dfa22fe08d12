"""Runs: made, changed, read, searched."""

import asyncio
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.events import JobId
from trainhouse.events.model.tracking import TagsChanged, TrackedRunBegun, TrackedRunChanged
from trainhouse.events.wire.topics import POINT_TOPICS
from trainhouse.gateway.context import now_ms
from trainhouse.gateway.mlflow import bodies, schemas
from trainhouse.gateway.mlflow.errors import MlflowRoute, invalid
from trainhouse.gateway.mlflow.filter_language import RUNS, parse_filter, parse_orders
from trainhouse.gateway.mlflow.request_scope import Reading, RequestScope, Row, Writing
from trainhouse.gateway.mlflow.search import paged, read_token, runs_query, token_of
from trainhouse.gateway.mlflow.whole_runs import WHOLE_SQL, Parts, parts_of, run_of

router = APIRouter(prefix="/api/2.0/mlflow", route_class=MlflowRoute)
Json = dict[str, Any]
Text = Annotated[str, Query(max_length=256)]
_HISTORY = """
SELECT DISTINCT metric, toString(step_metrics.value) AS value, step, toUnixTimestamp64Milli(time) AS time_ms FROM step_metrics
WHERE job_id = {id:String} AND metric = {key:String} AND rank = 0 ORDER BY time_ms, step, step_metrics.value
LIMIT {limit:UInt32} OFFSET {begin:UInt64}
"""


@router.post("/runs/create")
async def create(body: bodies.CreateRun, desk: Writing) -> Json:
    """A run begins. Its answer says all of it, so nothing needs to be read."""
    experiment = await desk.experiment(body.experiment_id)
    if experiment["deleted"]:
        raise invalid(f"the experiment {body.experiment_id} is deleted; restore it first")
    run_id, at_ms = secrets.token_hex(16), now_ms()
    tags = {tag.key: tag.value for tag in body.tags}
    name = body.run_name or tags.get("mlflow.runName") or f"run-{run_id[:8]}"
    # Whom a client claims to be is a tag like any other: the run is its sender's.
    tags = ({"mlflow.user": body.user_id} if body.user_id else {}) | tags
    begun = TrackedRunBegun(
        job_id=JobId(run_id),
        experiment_id=experiment["experiment_id"],
        experiment=experiment["name"],
        project=experiment["project"],
        name=name,
        user=desk.principal.sub,
        started_at_ms=at_ms if body.start_time is None else body.start_time,
    )
    tags |= {"mlflow.runName": name}
    await desk.send(begun, TagsChanged(job_id=begun.job_id, tags=tags, at_ms=at_ms))
    row = begun.model_dump(include={"job_id", "experiment_id", "project", "name", "user"}) | {
        "state": begun.state.value,
        "deleted": 0,
        "start_ms": begun.started_at_ms,
        "end_ms": None,
        "epoch": 0,
        "attempt": 0,
    }
    desk.remember(row)
    return {"run": schemas.run(row, tags=[{"key": k, "value": v} for k, v in tags.items()])}


@router.post("/runs/update")
async def update(body: bodies.UpdateRun, desk: Writing) -> Json:
    """A run ends, goes on, or has another name. What is scheduled has its state from the scheduler alone."""
    row = await desk.active_run(body.run_id)
    state = schemas.STATE[body.status] if body.status else None
    tracked = row.get("source") != "scheduled"
    if tracked and (state is not None or body.end_time is not None or body.run_name):
        ended_ms = body.end_time if body.end_time is not None else (now_ms() if state is not None and state.final else None)
        changed = TrackedRunChanged(
            job_id=JobId(body.run_id), state=state, ended_at_ms=ended_ms, name=body.run_name or None, at_ms=now_ms()
        )
        named = TagsChanged(job_id=JobId(body.run_id), tags={"mlflow.runName": body.run_name}, at_ms=now_ms()) if body.run_name else None
        await desk.send(changed, *([named] if named else []))
        row = schemas.updated(row, state, ended_ms, body.run_name)
        desk.remember(row)
    return {"run_info": schemas.run_info(row)}


@router.post("/runs/delete")
async def delete(body: bodies.OfRun, desk: Writing) -> Json:
    """A run leaves lists; it can be restored. A sweep removes its files a day later, where nothing else names them."""
    return await _mark(desk, body.run_id, deleted=True)


@router.post("/runs/restore")
async def restore(body: bodies.OfRun, desk: Writing) -> Json:
    """A deleted run is back."""
    return await _mark(desk, body.run_id, deleted=False)


async def _mark(desk: RequestScope, run_id: str, deleted: bool) -> Json:
    row = await desk.run(run_id)
    if row["source"] == "scheduled":
        raise invalid(f"{run_id} is a job that Trainhouse scheduled; jobs stay (`trainhouse cancel` ends one)")
    desk.forget(run_id)
    artifacts = ArtifactStore(desk.ports.objects, row["project"])
    if not deleted:  # before it is back, so that no sweep takes what it has
        await asyncio.to_thread(artifacts.mark_run, run_id, False)
    await desk.send(TrackedRunChanged(job_id=JobId(run_id), deleted=deleted, at_ms=now_ms()))
    if deleted:
        await asyncio.to_thread(artifacts.mark_run, run_id, True)
    return {}


@router.get("/runs/get")
async def get(desk: Reading, run_id: Text = "", run_uuid: Text = "") -> Json:
    """A run with its last metrics, its parameters and tags: one wait and one query."""
    asked = run_id or run_uuid
    await desk.fresh()
    rows = await desk.reader.rows(WHOLE_SQL, {"ids": [asked]})
    row = desk.visible_run(run_of(rows, asked, desk.principal.sees), asked)
    parts = Parts() if row["is_mixed"] else parts_of(rows).get(asked, Parts())
    return {"run": schemas.run(row, *parts.lists())}


@router.post("/runs/search")
async def search(body: bodies.SearchRuns, desk: Reading) -> Json:
    """Runs of experiments that a filter lets through, the newest first unless another order is asked."""
    conditions, orders = parse_filter(body.filter, RUNS), parse_orders(body.order_by, RUNS)
    await desk.fresh()
    sql, query = runs_query(desk.principal, body.experiment_ids, body.run_view_type, conditions, orders)
    text, values, begin = paged(sql, query, body.max_results, body.page_token)
    rows = await desk.reader.rows(text, values)
    answer: Json = {"runs": await whole(desk, rows[: body.max_results])}
    return answer | ({"next_page_token": token_of(begin + body.max_results)} if len(rows) > body.max_results else {})


@router.get("/metrics/get-history")
async def history(
    desk: Reading,
    metric_key: Annotated[str, Query(max_length=250)],
    run_id: Text = "",
    run_uuid: Text = "",
    page_token: Annotated[str | None, Query(max_length=64)] = None,
    max_results: Annotated[int, Query(ge=1, le=bodies.MAX_HISTORY)] = bodies.MAX_HISTORY,
) -> Json:
    """Every point of a metric, oldest first, a page at a time; a point that came twice is one."""
    begin = read_token(page_token)
    row = await desk.run(run_id or run_uuid, *POINT_TOPICS)
    if row["is_mixed"]:
        return {"metrics": []}
    values = {"id": row["job_id"], "key": metric_key, "limit": max_results + 1, "begin": begin}
    rows = await desk.reader.rows(_HISTORY, values)
    answer: Json = {"metrics": [schemas.metric(r) for r in rows[:max_results]]}
    return answer | ({"next_page_token": token_of(begin + max_results)} if len(rows) > max_results else {})


async def whole(desk: RequestScope, rows: list[Row]) -> list[Json]:
    """Runs with all that MLflow shows of them, in one query however many they are."""
    if not rows:
        return []
    read = await desk.reader.rows(WHOLE_SQL, {"ids": [row["job_id"] for row in rows]})
    found = parts_of(read)
    for row in rows:
        run = run_of(read, row["job_id"], desk.principal.sees)
        if run is None or run["is_mixed"]:
            found.pop(row["job_id"], None)
    return [schemas.run(r, *found.get(r["job_id"], Parts()).lists()) for r in rows]
