"""Logging routes of a run: points, parameters, tags, inputs, outputs."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from trainhouse.events import Event, JobId
from trainhouse.events.model.tracking import DatasetUsed, InputsLogged, ModelLink, ModelsLinked, ParametersLogged, TagsChanged
from trainhouse.events.wire.topics import TRACKED_METRICS, TRACKING
from trainhouse.gateway.context import now_ms
from trainhouse.gateway.mlflow import bodies
from trainhouse.gateway.mlflow.errors import MlflowRoute, invalid, missing
from trainhouse.gateway.mlflow.points import records_of_request
from trainhouse.gateway.mlflow.request_scope import RequestScope, Row, Writing

router = APIRouter(prefix="/api/2.0/mlflow", route_class=MlflowRoute)
Json = dict[str, Any]


@router.post("/runs/log-metric")
async def log_metric(body: bodies.LogMetric, desk: Writing) -> Json:
    """One point. Batches cost less."""
    await _points(desk, await desk.active_run(body.run_id), [body])
    return {}


@router.post("/runs/log-parameter")
async def log_parameter(body: bodies.LogParameter, desk: Writing) -> Json:
    """One parameter."""
    row = await desk.active_run(body.run_id)
    await desk.send(*await new_parameters(desk, row["job_id"], [body]))
    return {}


@router.post("/runs/log-batch")
async def log_batch(body: bodies.LogBatch, desk: Writing) -> Json:
    """Points, parameters and tags. When the answer is a success the brokers hold all of it; a repeat of the request changes nothing."""
    row = await desk.active_run(body.run_id)
    events = await new_parameters(desk, row["job_id"], body.params)
    if body.tags:
        events.append(_tags(row["job_id"], body.tags))
    await desk.send(*events)
    await _points(desk, row, body.metrics)
    return {}


@router.post("/runs/set-tag")
async def set_tag(body: bodies.SetTag, desk: Writing) -> Json:
    """One tag; a tag of that name is replaced."""
    row = await desk.active_run(body.run_id)
    await desk.send(_tags(row["job_id"], [body]))
    return {}


@router.post("/runs/delete-tag")
async def delete_tag(body: bodies.DeleteTag, desk: Writing) -> Json:
    """A tag is removed; it must be there."""
    row = await desk.active_run(body.run_id)
    await desk.fresh(TRACKING)
    sql = "SELECT key FROM tags WHERE job_id = {id:String} AND key = {key:String} LIMIT 1"
    if await desk.reader.one(sql, {"id": body.run_id, "key": body.key}) is None:
        raise missing(f"tag {body.key} of run {body.run_id}")
    await desk.send(TagsChanged(job_id=JobId(row["job_id"]), deleted=(body.key,), at_ms=now_ms()))
    return {}


@router.post("/runs/log-inputs")
async def log_inputs(body: bodies.LogInputs, desk: Writing) -> Json:
    """Datasets and logged models that the run read."""
    row = await desk.active_run(body.run_id)
    used = tuple(_dataset(i) for i in body.datasets)
    links = await _links(desk, row["job_id"], [ModelLink(model_id=JobId(m.model_id), role="input") for m in body.models])
    inputs = [InputsLogged(job_id=JobId(row["job_id"]), datasets=used, at_ms=now_ms())] if used else []
    await desk.send(*inputs, *links)
    return {}


@router.post("/runs/outputs")
async def log_outputs(body: bodies.LogOutputs, desk: Writing) -> Json:
    """Logged models that the run made."""
    row = await desk.active_run(body.run_id)
    made = [ModelLink(model_id=JobId(m.model_id), role="output", step=m.step) for m in body.models]
    await desk.send(*await _links(desk, row["job_id"], made))
    return {}


async def _links(desk: RequestScope, run_id: str, links: Sequence[ModelLink]) -> list[Event]:
    """The event of a run's logged models, if it has any. Raises MlflowError where one is not there for the caller."""
    for model_id in {str(link.model_id) for link in links}:
        await desk.active_model(model_id)
    return [ModelsLinked(job_id=JobId(run_id), models=tuple(links), at_ms=now_ms())] if links else []


def _dataset(given: bodies.DatasetInput) -> DatasetUsed:
    context = next((t.value for t in given.tags if t.key == "mlflow.data.context"), "")
    return DatasetUsed(context=context[:500], **given.dataset.model_dump())


async def _points(desk: RequestScope, row: Row, metrics: Sequence[bodies.Metric]) -> None:
    """One record after the other is acked; see `points` for why."""
    for record in records_of_request(row["job_id"], metrics, row["epoch"], row["attempt"]):
        event_id = f"{record.job_id}:{int(record.epoch)}:0:{record.stream}:{record.start}"
        await desk.bus.send(TRACKED_METRICS, record, event_id)


def _tags(run_id: str, tags: Sequence[bodies.Tag]) -> Event:
    return TagsChanged(job_id=JobId(run_id), tags={t.key: t.value for t in tags}, at_ms=now_ms())


async def new_parameters(desk: RequestScope, run_id: str, given: Sequence[bodies.Parameter]) -> list[Event]:
    """The event of what is new. Raises MlflowError where a parameter has another value already: it never changes."""
    wanted: dict[str, str] = {}
    for p in given:
        if wanted.setdefault(p.key, p.value) != p.value:
            raise invalid(f"the request gives the parameter {p.key!r} two values")
    if not wanted:
        return []
    await desk.fresh(TRACKING)
    sql = "SELECT key, value FROM parameters WHERE job_id = {id:String} AND key IN {keys:Array(String)}"
    known = {r["key"]: r["value"] for r in await desk.reader.rows(sql, {"id": run_id, "keys": list(wanted)})}
    changed = [key for key, value in known.items() if wanted[key] != value]
    if changed:
        key = changed[0]
        raise invalid(
            f"the parameter {key!r} of {run_id} is {known[key]!r} already, and parameters never change; log it under another name"
        )
    new = {key: value for key, value in wanted.items() if key not in known}
    return [ParametersLogged(job_id=JobId(run_id), parameters=new, at_ms=now_ms())] if new else []
