"""Logged models, as MLflow 3's clients have them: made, finalized, read, searched, deleted.

Holds: a logged model is of its experiment's project, and has its parameters, tags and files under its own id, so that it outlives the run
that made it. A deleted one is as if it were not there, unless deleted ones are asked for; a sweep removes its files a day later, where no
version of a model names them.
Never: keeps metrics of a logged model by themselves: those are of its run.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.events import JobId
from trainhouse.events.model.tracking import LoggedModelChanged, ParametersLogged, TagsChanged
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.context import now_ms
from trainhouse.gateway.mlflow import bodies, schemas
from trainhouse.gateway.mlflow.artifact_routes import files_of
from trainhouse.gateway.mlflow.errors import MlflowRoute, invalid, missing, unsupported
from trainhouse.gateway.mlflow.filter_language import LOGGED_MODELS, parse_filter, parse_orders
from trainhouse.gateway.mlflow.log_routes import new_parameters
from trainhouse.gateway.mlflow.request_scope import Reading, RequestScope, Row, Writing
from trainhouse.gateway.mlflow.search import models_query, paged, token_of
from trainhouse.gateway.mlflow.version_files import cleaned

router = APIRouter(prefix="/api/2.0/mlflow/logged-models", route_class=MlflowRoute)
Json = dict[str, Any]
_ID = Annotated[str, Path(max_length=34, pattern=r"^m-[0-9a-f]{32}$")]
_STATUS: Final = {shown: status for status, shown in schemas.MODEL_STATUS.items()}
_PARTS: Final = """
SELECT 'param' AS part, job_id, key, value FROM parameters WHERE job_id IN {ids:Array(String)}
UNION ALL SELECT 'tag', job_id, key, value FROM tags WHERE job_id IN {ids:Array(String)}
"""


@router.post("")
async def create(body: bodies.CreateLoggedModel, desk: Writing) -> Json:
    """A client begins to log a model. Its answer says all of it, so nothing needs to be read."""
    experiment = await desk.experiment(body.experiment_id)
    if experiment["deleted"]:
        raise invalid(f"the experiment {body.experiment_id} is deleted; restore it first")
    if body.source_run_id is not None and (await desk.active_run(body.source_run_id))["project"] != experiment["project"]:
        raise invalid(
            f"run {body.source_run_id} is of another project than experiment {body.experiment_id}: log the model where its run is"
        )
    model_id, at_ms = f"m-{secrets.token_hex(16)}", now_ms()
    row: Row = {
        **{name: experiment[name] for name in ("experiment_id", "project")},
        "experiment": experiment["name"],
        "name": body.name or f"model-{model_id[2:10]}",
        "user": desk.principal.sub,
        "model_type": body.model_type,
        "source_run_id": body.source_run_id or "",
        "model_id": model_id,
    }
    created = _changed(row, created=True, status="PENDING", at_ms=at_ms)
    params, tags = {p.key: p.value for p in body.params}, {t.key: t.value for t in body.tags}
    logged = [ParametersLogged(job_id=JobId(model_id), parameters=params, at_ms=at_ms)] if params else []
    tagged = [TagsChanged(job_id=JobId(model_id), tags=tags, at_ms=at_ms)] if tags else []
    await desk.send(created, *logged, *tagged)
    row |= {"job_id": model_id, "status": "PENDING", "deleted": 0, "created_ms": at_ms, "updated_ms": at_ms}
    desk.remember(row)
    return {"model": schemas.logged_model(row, _pairs(params), _pairs(tags))}


@router.get("/{model_id}")
async def get(model_id: _ID, desk: Reading, allow_deleted: Annotated[bool, Query()] = False) -> Json:
    """One logged model."""
    return {"model": (await _whole(desk, [await desk.logged_model(model_id, allow_deleted)]))[0]}


@router.patch("/{model_id}")
async def finalize(model_id: _ID, body: bodies.FinalizeLoggedModel, desk: Writing) -> Json:
    """The client has logged all of it, or could not."""
    row = await desk.active_model(model_id)
    await desk.send(_changed(row, status=_STATUS[body.status], at_ms=now_ms()))
    return {"model": (await _whole(desk, [await desk.logged_model(model_id)]))[0]}


@router.delete("/{model_id}")
async def delete(model_id: _ID, desk: Writing) -> Json:
    """A logged model leaves lists; versions of models that were made of it stay."""
    row = await desk.logged_model(model_id)
    desk.forget(model_id)
    await desk.send(_changed(row, deleted=True, at_ms=now_ms()))
    desk.forget(model_id)  # again: a request beside this one may have read it before it was deleted
    await asyncio.to_thread(ArtifactStore(desk.ports.objects, row["project"]).mark_run, model_id, True)
    return {}


@router.post("/search")
async def search(body: bodies.SearchLoggedModels, desk: Reading) -> Json:
    """Logged models of experiments that a filter lets through, the newest first unless another order is asked."""
    if body.datasets:
        raise unsupported("Trainhouse keeps no metrics of logged models by dataset: search the runs that made them (`search_runs`)")
    orders = [f"{each.field_name} {'ASC' if each.ascending else 'DESC'}" for each in body.order_by]
    conditions, ordered = parse_filter(body.filter, LOGGED_MODELS), parse_orders(orders, LOGGED_MODELS)
    await desk.fresh(TRACKING)
    sql, query = models_query(desk.principal, body.experiment_ids, conditions, ordered)
    text, values, begin = paged(sql, query, body.max_results, body.page_token)
    rows = await desk.reader.rows(text, values)
    answer: Json = {"models": await _whole(desk, rows[: body.max_results])}
    return answer | ({"next_page_token": token_of(begin + body.max_results)} if len(rows) > body.max_results else {})


@router.patch("/{model_id}/tags")
async def set_tags(model_id: _ID, body: bodies.LoggedModelTags, desk: Writing) -> Json:
    """Tags; those of the same names are replaced."""
    await desk.active_model(model_id)
    if body.tags:
        await desk.send(TagsChanged(job_id=JobId(model_id), tags={t.key: t.value for t in body.tags}, at_ms=now_ms()))
    return {}


@router.delete("/{model_id}/tags/{key:path}")
async def delete_tag(model_id: _ID, key: Annotated[str, Path(min_length=1, max_length=250)], desk: Writing) -> Json:
    """A tag is removed; it must be there."""
    row = await desk.logged_model(model_id)
    sql = "SELECT key FROM tags WHERE job_id = {id:String} AND key = {key:String} LIMIT 1"
    if await desk.reader.one(sql, {"id": row["job_id"], "key": key}) is None:
        raise missing(f"tag {key} of logged model {model_id}")
    await desk.send(TagsChanged(job_id=JobId(model_id), deleted=(key,), at_ms=now_ms()))
    return {}


@router.post("/{model_id}/params")
async def log_parameters(model_id: _ID, body: bodies.LoggedModelParameters, desk: Writing) -> Json:
    """Parameters, which never change."""
    await desk.active_model(model_id)
    await desk.send(*await new_parameters(desk, model_id, body.params))
    return {}


@router.get("/{model_id}/artifacts/directories")
async def listed(model_id: _ID, desk: Reading, artifact_directory_path: Annotated[str, Query(max_length=2048)] = "") -> Json:
    """Lists the direct entries of a folder of it."""
    row = await desk.logged_model(model_id)
    files = await files_of(desk, row, cleaned(artifact_directory_path))
    return {"root_uri": schemas.artifact_root(row["experiment_id"], model_id), "files": files}


def _changed(row: Row, **change: Any) -> LoggedModelChanged:
    """The event of a change."""
    named = {name: row[name] for name in ("model_id", "experiment_id", "project", "name", "user", "model_type")}
    about = {"experiment": row["experiment"], "source_run_id": row["source_run_id"] or None}
    return LoggedModelChanged.model_validate(named | about | change)


async def _whole(desk: RequestScope, rows: list[Row]) -> list[Json]:
    """Logged models with their parameters and tags, in one query however many they are."""
    if not rows:
        return []
    parts = await desk.reader.rows(_PARTS, {"ids": [row["model_id"] for row in rows]})
    return whole_models(rows, parts)


def whole_models(rows: Sequence[Row], parts: Sequence[Row]) -> list[Json]:
    """Logged models with those of the parameters and tags that are theirs. Pure."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: str(part["key"])):
        found[part["job_id"], part["part"]].append(part)
    return [schemas.logged_model(row, found[row["model_id"], "param"], found[row["model_id"], "tag"]) for row in rows]


def _pairs(texts: dict[str, str]) -> list[Row]:
    return [{"key": key, "value": value} for key, value in sorted(texts.items())]
