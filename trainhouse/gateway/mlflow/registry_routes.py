"""MLflow's model registry over that of Trainhouse: registered models, versions, aliases and searches.

Holds: setting the alias `champion` asks the gate, and a refusal says what it lacks; other aliases decide nothing. A version is of a logged
model, whose run made it, or of a job's checkpoint: its run is the job. A name means the model of that name in the projects that the asker
may see.
Never: deletes a model or a version: those are archived.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import Field, StringConstraints, ValidationError

from trainhouse.events import (
    ModelArchiveRequested,
    ModelDescribed,
    ModelPromotionRequested,
    ModelRegistered,
)
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.events.wire.validation_messages import explain_validation
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import ALL_PROJECTS, Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.mlflow.bodies import Body, Tag
from trainhouse.gateway.mlflow.errors import MlflowError, MlflowRoute, invalid, missing, unsupported
from trainhouse.gateway.mlflow.filter_language import Language, parse_filter, parse_orders
from trainhouse.gateway.mlflow.registry_entities import (
    CHAMPION,
    LOGGED_MODEL,
    OF_MODELS,
    OF_VERSIONS,
    aliases_of,
    attributes_of,
    keeps,
    logged_model_of,
    model_json,
    model_tags,
    ordered,
    source_of,
    tags_of_client,
    version_json,
    version_tags,
)
from trainhouse.gateway.mlflow.request_scope import Writing
from trainhouse.gateway.mlflow.search import read_token, token_of
from trainhouse.gateway.mlflow.version_files import place_of
from trainhouse.gateway.mlflow.version_sources import fields_of_source
from trainhouse.gateway.models.model_book import ModelRefusedError
from trainhouse.gateway.models.model_routes import ask, by_token
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

router = APIRouter(prefix="/api/2.0/mlflow", route_class=MlflowRoute)
Json = dict[str, Any]
MAX_RESULTS: Final = 200_000
_VERSION: Final = re.compile(r"models:/([^/@]{1,256})/([1-9][0-9]{0,9})")
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
VersionText = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,9}$")]
Text = Annotated[str, StringConstraints(max_length=16_384)]
NameQuery = Annotated[str, Query(min_length=1, max_length=256)]
VersionQuery = Annotated[str, Query(pattern=r"^[1-9][0-9]{0,9}$")]
AliasQuery = Annotated[str, Query(min_length=1, max_length=128)]
FilterQuery = Annotated[str, Query(max_length=20_000)]
OrderQuery = Annotated[list[str], Query(max_length=20)]
ResultsQuery = Annotated[int, Query(ge=1, le=MAX_RESULTS)]
TokenQuery = Annotated[str, Query(max_length=64)]


class OfModel(Body):
    name: Name


class CreateModel(OfModel):
    tags: Annotated[list[Tag], Field(max_length=64, default_factory=list)]
    description: Text | None = None


class UpdateModel(OfModel):
    description: Text = ""


class ModelTag(OfModel, Tag):
    pass


class DeleteModelTag(OfModel):
    key: Annotated[str, StringConstraints(min_length=1, max_length=250)]


class Alias(OfModel):
    alias: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    version: VersionText


class DeleteAlias(OfModel):
    alias: Annotated[str, StringConstraints(min_length=1, max_length=128)]


class CreateVersion(OfModel):
    source: Annotated[str, StringConstraints(max_length=4096)] = ""
    run_id: Annotated[str, StringConstraints(max_length=128)] | None = None
    model_id: Annotated[str, StringConstraints(max_length=128)] | None = None
    tags: Annotated[list[Tag], Field(max_length=64, default_factory=list)]
    description: Text | None = None


class OfVersion(OfModel):
    version: VersionText


class UpdateVersion(OfVersion):
    description: Text = ""


class VersionTag(OfVersion, Tag):
    pass


class DeleteVersionTag(OfVersion):
    key: Annotated[str, StringConstraints(min_length=1, max_length=250)]


class TransitionStage(OfVersion):
    stage: Annotated[str, StringConstraints(max_length=64)]


class LatestVersions(OfModel):
    stages: Annotated[list[str], Field(max_length=8, default_factory=list)]


@router.post("/registered-models/create")
async def create_model(body: CreateModel, here: Here, principal: Submitter, request: Request) -> Json:
    """A model without a version."""
    project = _project_of_new(principal)
    fields = {"name": body.name, "create": True, "notes": body.description or "", "tags": _tags(body.tags)}
    await _ask(here, principal, request, ModelDescribed, {"project": project} | fields)
    return {"registered_model": model_json(await _model(here, principal, body.name))}


@router.get("/registered-models/get")
async def get_model(name: NameQuery, here: Here, principal: Viewer) -> Json:
    """One model."""
    return {"registered_model": model_json(await _model(here, principal, name))}


@router.patch("/registered-models/update")
async def update_model(body: UpdateModel, here: Here, principal: Submitter, request: Request) -> Json:
    """Its description."""
    await _describe(here, principal, request, body.name, {"notes": body.description})
    return {"registered_model": model_json(await _model(here, principal, body.name))}


@router.post("/registered-models/set-tag")
async def set_model_tag(body: ModelTag, here: Here, principal: Submitter, request: Request) -> Json:
    """One tag of a model."""
    await _describe(here, principal, request, body.name, {"tags": {body.key: body.value}})
    return {}


@router.delete("/registered-models/delete-tag")
async def delete_model_tag(body: DeleteModelTag, here: Here, principal: Submitter, request: Request) -> Json:
    """Removes a tag of a model."""
    await _describe(here, principal, request, body.name, {"remove_tags": (body.key,)})
    return {}


@router.get("/registered-models/search")
async def search_models(
    here: Here,
    principal: Viewer,
    filter: FilterQuery = "",
    max_results: ResultsQuery = 100,
    order_by: OrderQuery = [],  # noqa: B006
    page_token: TokenQuery = "",
) -> Json:
    """Models, each with its aliases."""
    found = [(attributes_of(each), each) for each in await _visible(here, principal)]
    chosen, token = _page(found, OF_MODELS, filter, order_by, max_results, page_token, model_tags)
    return {"registered_models": [model_json(each) for each in chosen]} | token


@router.get("/registered-models/alias")
async def by_alias(name: NameQuery, alias: AliasQuery, here: Here, principal: Viewer) -> Json:
    """The version that an alias names."""
    model = await _model(here, principal, name)
    version = model.get(dict(aliases_of(model)).get(alias))
    if version is None:
        # As MLflow's own server says it: clients look for this code.
        raise invalid(f"Registered model alias {alias} not found.")
    return {"model_version": version_json(model, version)}


@router.post("/registered-models/alias")
async def set_alias(body: Alias, here: Here, principal: Submitter, request: Request) -> Json:
    """Names a version; `champion` asks the gate."""
    model, version = await _version(here, principal, body.name, body.version)
    if body.alias == CHAMPION:
        if model.champion != version.version:
            await _ask(here, principal, request, ModelPromotionRequested, _about(model) | {"version": body.version})
        return {}
    await _ask(here, principal, request, ModelDescribed, _about(model) | {"version": body.version, "alias": body.alias})
    return {}


@router.delete("/registered-models/alias")
async def delete_alias(body: DeleteAlias, here: Here, principal: Submitter, request: Request) -> Json:
    """Removes an alias."""
    await _describe(here, principal, request, body.name, {"alias": body.alias})
    return {}


@router.post("/registered-models/get-latest-versions")
async def latest_versions(body: LatestVersions, here: Here, principal: Viewer) -> Json:
    """The newest version of each stage."""
    found = model_json(await _model(here, principal, body.name))["latest_versions"]
    stages = {stage.lower() for stage in body.stages}
    return {"model_versions": [each for each in found if not stages or each["current_stage"].lower() in stages]}


@router.post("/registered-models/rename")
@router.delete("/registered-models/delete")
@router.delete("/model-versions/delete")
async def not_deleted(_: Viewer) -> Json:
    """Models and versions stay, under their names."""
    raise unsupported("Trainhouse deletes and renames no models: what was champion can be asked for ever; archive the version instead")


@router.post("/model-versions/create")
async def create_version(body: CreateVersion, here: Here, principal: Submitter, request: Request, desk: Writing) -> Json:
    """A version of a logged model, of files of a run, of another version, or of a checkpoint: the newest unless the source names one."""
    model = await _model(here, principal, body.name)
    copied = await _of_version(here, principal, model, body.source)
    tags = tags_of_client(_tags(body.tags), is_copy=copied is not None)
    fields = copied or await fields_of_source(desk, model, body.source, body.run_id, body.model_id)
    tags |= fields.pop("tags", {})
    about = _about(model) | {"notes": body.description or "", "tags": tags}
    decided = await _ask(here, principal, request, ModelRegistered, about | fields)
    return {"model_version": version_json(*await _version(here, principal, body.name, str(getattr(decided, "version", 0))))}


@router.get("/model-versions/get")
async def get_version(name: NameQuery, version: VersionQuery, here: Here, principal: Viewer) -> Json:
    """One version."""
    return {"model_version": version_json(*await _version(here, principal, name, version))}


@router.get("/model-versions/get-download-uri")
async def download_uri(name: NameQuery, version: VersionQuery, here: Here, principal: Viewer) -> Json:
    """Address of a version's files."""
    return {"artifact_uri": place_of(*await _version(here, principal, name, version))}


@router.get("/model-versions/search")
async def search_versions(
    here: Here,
    principal: Viewer,
    filter: FilterQuery = "",
    max_results: ResultsQuery = 10_000,
    order_by: OrderQuery = [],  # noqa: B006
    page_token: TokenQuery = "",
) -> Json:
    """Versions, each with its aliases."""
    found = [
        (_version_attributes(model, version), (model, version)) for model in await _visible(here, principal) for version in model.versions
    ]

    chosen, token = _page(found, OF_VERSIONS, filter, order_by, max_results, page_token, lambda pair: version_tags(pair[1]))
    return {"model_versions": [version_json(*each) for each in chosen]} | token


@router.patch("/model-versions/update")
async def update_version(body: UpdateVersion, here: Here, principal: Submitter, request: Request) -> Json:
    """Its description."""
    await _describe(here, principal, request, body.name, {"version": body.version, "notes": body.description})
    return {"model_version": version_json(*await _version(here, principal, body.name, body.version))}


@router.post("/model-versions/set-tag")
async def set_version_tag(body: VersionTag, here: Here, principal: Submitter, request: Request) -> Json:
    """One tag of a version."""
    await _describe(here, principal, request, body.name, {"version": body.version, "tags": tags_of_client({body.key: body.value})})
    return {}


@router.delete("/model-versions/delete-tag")
async def delete_version_tag(body: DeleteVersionTag, here: Here, principal: Submitter, request: Request) -> Json:
    """Removes a tag of a version."""
    tags_of_client({body.key: ""})
    await _describe(here, principal, request, body.name, {"version": body.version, "remove_tags": (body.key,)})
    return {}


@router.post("/model-versions/transition-stage")
async def transition(body: TransitionStage, here: Here, principal: Submitter, request: Request) -> Json:
    """MLflow's old stages: Production asks the gate, Archived archives."""
    model, _ = await _version(here, principal, body.name, body.version)
    kinds: dict[str, type[ModelRequest]] = {"production": ModelPromotionRequested, "archived": ModelArchiveRequested}
    kind = kinds.get(body.stage.lower())
    if kind is None:
        raise invalid(
            f"a version cannot be moved to stage {body.stage!r}: a new one is in staging; Production asks the gate, Archived archives"
        )
    await _ask(here, principal, request, kind, _about(model) | {"version": body.version})
    return {"model_version": version_json(*await _version(here, principal, body.name, body.version))}


async def _of_version(here: Gateway, principal: Principal, model: ModelEntry, source: str) -> dict[str, Any] | None:
    """Fields of the registration of what is a version already; None of another source."""
    named = _VERSION.fullmatch(source)
    if named is None:
        return None
    other, version = await _version(here, principal, named[1], named[2])
    if other.project != model.project:
        raise invalid(f"model {other.name} is of project {other.project}, and model {model.name} of project {model.project}")
    logged = logged_model_of(version)
    return {"content": version.facts.content} | ({"tags": {LOGGED_MODEL: logged}} if logged else {})


def _tags(tags: list[Tag]) -> dict[str, str]:
    return {tag.key: tag.value for tag in tags}


def _about(model: ModelEntry) -> dict[str, Any]:
    return {"project": model.project, "name": model.name}


def _project_of_new(principal: Principal) -> str:
    """Project of a new model: the token's, if it is for one; else the default one."""
    if len(principal.projects) == 1 and principal.projects[0] != ALL_PROJECTS:
        return principal.projects[0]
    return DEFAULT_PROJECT


async def _visible(here: Gateway, principal: Principal) -> list[ModelEntry]:
    await here.models.ready()
    return [each for each in here.models.view.models() if principal.sees(each.project)]


async def _model(here: Gateway, principal: Principal, name: str) -> ModelEntry:
    """The model that a name means: that of the default project, or the only one of the projects that the asker may see."""
    found = [each for each in await _visible(here, principal) if each.name == name]
    own = next((each for each in found if each.project == _project_of_new(principal)), None)
    if own is not None:
        return own
    if len(found) > 1:
        projects = ", ".join(each.project for each in found)
        raise invalid(f"projects {projects} have a model {name}: use a token of one of them")
    if not found:
        raise missing(f"registered model {name!r}")
    return found[0]


async def _version(here: Gateway, principal: Principal, name: str, version: str) -> tuple[ModelEntry, Version]:
    model = await _model(here, principal, name)
    found = model.get(int(version))
    if found is None:
        raise missing(f"version {version} of model {name!r}")
    return model, found


async def _describe(here: Gateway, principal: Principal, request: Request, name: str, fields: dict[str, Any]) -> None:
    model = await _model(here, principal, name)
    await _ask(here, principal, request, ModelDescribed, _about(model) | fields)


async def _ask(here: Gateway, principal: Principal, request: Request, kind: type[ModelRequest], fields: dict[str, Any]) -> ModelDecision:
    try:
        event = kind.model_validate(fields | by_token(principal))
    except ValidationError as error:
        raise invalid(explain_validation(error, kind)) from error
    try:
        return await ask(here, principal, request, event)
    except ModelRefusedError as refused:
        exists = isinstance(event, ModelDescribed) and event.create
        raise MlflowError("RESOURCE_ALREADY_EXISTS" if exists else "BAD_REQUEST", str(refused)) from refused


def _version_attributes(model: ModelEntry, version: Version) -> dict[str, Any]:
    at_ms = version.registered_at_ms
    about = {"name": model.name, "run_id": str(version.facts.job_id), "source": source_of(version), "version_number": version.version}
    return about | {"creation_timestamp": at_ms, "last_updated_timestamp": at_ms}


def _page(
    found: list[tuple[dict[str, Any], Any]],
    language: Language,
    filter: str,
    order_by: list[str],
    limit: int,
    token: str,
    tags: Callable[[Any], dict[str, str]],
) -> tuple[list[Any], Json]:
    """One page of what a filter keeps, and the token of the next one."""
    conditions = parse_filter(filter, language)
    kept = [pair for pair in found if keeps(conditions, pair[0], tags(pair[1]))]
    begin = read_token(token)
    chosen = [thing for _, thing in ordered(kept, parse_orders(order_by, language))[begin : begin + limit]]
    more = begin + limit < len(kept)
    return chosen, {"next_page_token": token_of(begin + limit)} if more else {}
