"""Parts of a model that its page shows: spans of its champions, one version with its evidence; its card; versions of a job, a dataset.

Holds: a model of a project that its asker may not see does not exist for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request

from trainhouse.checkpointing.errors import DamagedError, InvalidStateError, UnknownFormatError
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.models.model_routes import NamePath, ProjectQuery, VersionPath, version_row, visible_model
from trainhouse.gateway.models.model_summary import comparisons_of, lineage_id_of
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.listing import Limit
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.code import asked, store_of
from trainhouse.gateway.routes.jobs import JobPath, visible_job
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

if TYPE_CHECKING:
    from trainhouse.checkpointing.models.model_card import EvaluationFacts
    from trainhouse.checkpointing.stores.object_store import ObjectStore

router = APIRouter(tags=["models"])

MOST_MADE = 200
MOST_OF_EACH = 3
_MADE = "project, model, version, semver, stage, commit, job_id, data, registered_by, registered_at"


@router.get("/v1/models/{name}/champions")
async def champions(name: NamePath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT, limit: Limit = 1000) -> Json:
    """Spans in which versions were champion, the newest first; of each model 1,000 at most."""
    await visible_model(here, principal, project, name)
    spans = here.models.champions(project, name).newest_first()
    return Json({"items": [each.as_row() for each in spans[:limit]], "next_cursor": None})


@router.get("/v1/models/{name}/versions/{version}")
async def version_of(name: NamePath, version: VersionPath, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT) -> Json:
    """One version with its results, its comparisons and its id in lineage."""
    model, found = await _version(here, principal, project, name, version)
    return Json(version_row(found) | {"comparisons": comparisons_of(model, found), "lineage_id": lineage_id_of(model, found)})


@router.get("/v1/models/{name}/versions/{version}/card")
async def card(
    name: NamePath, version: VersionPath, request: Request, here: Here, principal: Viewer, project: ProjectQuery = DEFAULT_PROJECT
) -> Json:
    """Model card of a version, as `trainhouse models card` writes it: YAML metadata and Markdown."""
    model, found = await _version(here, principal, project, name, version)
    return Json({"card": await asked(_card, store_of(request), model, found)})


@router.get("/v1/training-jobs/{job_id}/models")
async def models_of_job(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Versions of models that were made of the job's checkpoints, the newest first; 200 at most."""
    await visible_job(here, principal, job_id)
    where = Where()
    where.visible(principal)
    where.equal("job_id", job_id)
    return await _made(here, where)


@router.get("/v1/datasets/{name}/models")
async def models_of_dataset(
    name: Annotated[str, Path(description="The dataset's name.", min_length=1, max_length=128)], here: Here, principal: Viewer
) -> Json:
    """Versions of models that were trained on any version of the dataset, the three newest of each model, the newest first; 200 at most."""
    where = Where()
    where.visible(principal)
    where.add("arrayExists(d -> startsWith(d, {beginning:String}), data)", beginning=f"{name}@")
    return await _made(here, where, f"LIMIT {MOST_OF_EACH} BY project, model")


async def _made(here: Here, where: Where, of_each: str = "") -> Json:
    order = f"ORDER BY registered_at DESC, project, model, version {of_each} LIMIT {MOST_MADE}"
    sql = f"SELECT {_MADE} FROM model_versions WHERE {where.text} {order}"
    return Json({"items": await here.reader.rows(sql, where.values), "next_cursor": None})


async def _version(here: Here, principal: Viewer, project: str, name: str, version: str) -> tuple[ModelEntry, Version]:
    model = await visible_model(here, principal, project, name)
    found = model.find(version)
    if found is None:
        raise not_found(f"version {version} of model {name}")
    return model, found


def _card(objects: ObjectStore, model: ModelEntry, version: Version) -> str:
    """Reads the version's manifests and writes its card. Blocks. Raises ProblemError 409 where they are missing or damaged."""
    from trainhouse.checkpointing.models.fetch import checkpoint_of
    from trainhouse.checkpointing.models.model_card import card_of
    from trainhouse.checkpointing.models.named_version import NamedVersion
    from trainhouse.checkpointing.models.stage_chain import StagedVersion
    from trainhouse.checkpointing.models.version_content import read_content

    content_hash = version.facts.content
    named = NamedVersion(model.project, model.name, StagedVersion(version=version.version, semver=version.semver, content=content_hash))
    try:
        content = read_content(objects, model.project, content_hash)
        manifest = checkpoint_of(objects, content_hash, content)
        return card_of(named, content, manifest, _figures(version))
    except (InvalidStateError, DamagedError, UnknownFormatError) as error:
        raise ProblemError(409, "No card", str(error)) from error


def _figures(version: Version) -> list[EvaluationFacts]:
    from trainhouse.checkpointing.models.model_card import EvaluationFacts

    return [
        EvaluationFacts(
            each.suite, "/".join(part for part in (each.dataset, each.split) if part), metric, figure.value, figure.low, figure.high
        )
        for each in version.evaluations
        for metric, figure in sorted(each.metrics.items())
    ]
