"""Experiments: an experiment `vision/resnet` belongs to the project `vision`, and each project with jobs is one too."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainhouse.events.model.tracking import DEFAULT_EXPERIMENT_ID, ExperimentChanged, experiment_id_of, project_of
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.context import now_ms
from trainhouse.gateway.mlflow import bodies, schemas
from trainhouse.gateway.mlflow.errors import MlflowError, MlflowRoute, invalid, missing, unsupported
from trainhouse.gateway.mlflow.filter_language import EXPERIMENTS, parse_filter, parse_orders
from trainhouse.gateway.mlflow.request_scope import Reading, RequestScope, Row, Writing
from trainhouse.gateway.mlflow.search import experiments_query, paged, token_of

router = APIRouter(prefix="/api/2.0/mlflow", route_class=MlflowRoute)
Json = dict[str, Any]
_TAGS = """
SELECT experiment_id, key, text FROM experiments_rows FINAL
WHERE what = 'tag' AND NOT deleted AND experiment_id IN {ids:Array(String)} ORDER BY key
"""


@router.post("/experiments/create")
async def create(body: bodies.CreateExperiment, desk: Writing) -> Json:
    """A new experiment. Its id follows from its name, so that two who create it mean the same one."""
    project = project_of(body.name)
    if not desk.principal.sees(project):
        mine = ", ".join(desk.principal.projects)
        raise MlflowError("PERMISSION_DENIED", f"your token is for {mine}: name the experiment after one of them, or PROJECT/NAME")
    experiment_id = experiment_id_of(body.name)
    if await _known(desk, experiment_id):
        raise MlflowError("RESOURCE_ALREADY_EXISTS", f"the experiment {body.name!r} exists already")
    tags = {t.key: t.value for t in body.tags}
    await desk.send(
        ExperimentChanged(
            experiment_id=experiment_id, name=body.name, project=project, user=desk.principal.sub, created=True, tags=tags, at_ms=now_ms()
        )
    )
    return {"experiment_id": experiment_id}


@router.get("/experiments/get")
async def get(desk: Reading, experiment_id: Annotated[str, Query(max_length=64)]) -> Json:
    """One experiment by its id."""
    await desk.fresh(TRACKING)
    return {"experiment": (await _whole(desk, [await desk.experiment(experiment_id)]))[0]}


@router.get("/experiments/get-by-name")
async def get_by_name(desk: Reading, experiment_name: Annotated[str, Query(max_length=500)]) -> Json:
    """One experiment by its name."""
    await desk.fresh(TRACKING)
    try:
        found = await desk.experiment(experiment_id_of(experiment_name))
    except MlflowError as error:
        raise missing(f"experiment {experiment_name!r}") from error
    if found["name"] != experiment_name:
        raise missing(f"experiment {experiment_name!r}")
    return {"experiment": (await _whole(desk, [found]))[0]}


@router.post("/experiments/search")
async def search(body: bodies.SearchExperiments, desk: Reading) -> Json:
    """Experiments that a filter lets through, those that changed last first."""
    conditions, orders = parse_filter(body.filter, EXPERIMENTS), parse_orders(body.order_by, EXPERIMENTS)
    await desk.fresh(TRACKING)
    sql, query = experiments_query(desk.principal, body.view_type, conditions, orders)
    text, values, begin = paged(sql, query, body.max_results, body.page_token)
    rows = await desk.reader.rows(text, values)
    answer: Json = {"experiments": await _whole(desk, rows[: body.max_results])}
    return answer | ({"next_page_token": token_of(begin + body.max_results)} if len(rows) > body.max_results else {})


@router.post("/experiments/delete")
async def delete(body: bodies.OfExperiment, desk: Writing) -> Json:
    """An experiment leaves lists; its runs stay."""
    if body.experiment_id == DEFAULT_EXPERIMENT_ID:
        raise invalid("the default experiment stays")
    await _change(desk, body.experiment_id, deleted=True)
    return {}


@router.post("/experiments/restore")
async def restore(body: bodies.OfExperiment, desk: Writing) -> Json:
    """A deleted experiment is back."""
    await _change(desk, body.experiment_id, deleted=False)
    return {}


@router.post("/experiments/update")
async def update(body: bodies.UpdateExperiment, desk: Writing) -> Json:
    """Never another name: it says whose the experiment is."""
    found = await desk.experiment(body.experiment_id)
    if body.new_name in ("", found["name"]):
        return {}
    raise unsupported(f"the experiment {found['name']!r} keeps its name, which says whose it is; create another one")


@router.post("/experiments/set-experiment-tag")
async def set_tag(body: bodies.SetExperimentTag, desk: Writing) -> Json:
    """One tag of an experiment."""
    await _change(desk, body.experiment_id, tags={body.key: body.value})
    return {}


@router.post("/experiments/delete-experiment-tag")
async def delete_tag(body: bodies.DeleteExperimentTag, desk: Writing) -> Json:
    """A tag of an experiment is removed."""
    await _change(desk, body.experiment_id, deleted_tags=(body.key,))
    return {}


async def _change(desk: RequestScope, experiment_id: str, **change: Any) -> None:
    found = await desk.experiment(experiment_id)
    # What nobody made by hand, a project's own, is made with its first change.
    await desk.send(
        ExperimentChanged(
            experiment_id=experiment_id,
            name=found["name"],
            project=found["project"],
            user=desk.principal.sub,
            created=True,
            at_ms=now_ms(),
            **change,
        )
    )


async def _known(desk: RequestScope, experiment_id: str) -> bool:
    try:
        await desk.experiment(experiment_id)
    except MlflowError:
        return False
    return True


async def _whole(desk: RequestScope, rows: list[Row]) -> list[Json]:
    tags = await desk.reader.rows(_TAGS, {"ids": [r["experiment_id"] for r in rows]}) if rows else []
    return [schemas.experiment(r, [t for t in tags if t["experiment_id"] == r["experiment_id"]]) for r in rows]
