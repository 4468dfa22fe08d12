"""Contents of new versions by MLflow's sources: a logged model, the files of a run, a version, or a checkpoint of a job.

Holds: no bytes are copied, since the files of a project are in its store under their hashes; a version has an `MLmodel`, which says how it
is loaded, or a checkpoint. What is of another project than the model is refused.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

from trainhouse.checkpointing.artifacts.artifact_store import hashed_content
from trainhouse.checkpointing.errors import DamagedError, InvalidStateError
from trainhouse.checkpointing.models.version_content import PreparedVersion, prepare_files
from trainhouse.events.model.artifact import ArtifactError, ArtifactFile
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.model_content import ModelContentError
from trainhouse.events.model.tracking import is_model_id
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.mlflow.artifact_routes import known_files, placed
from trainhouse.gateway.mlflow.errors import MlflowError, invalid
from trainhouse.gateway.mlflow.mlmodel import MLMODEL, check_mlmodel_size, parts_of_mlmodel
from trainhouse.gateway.mlflow.registry_entities import LOGGED_MODEL
from trainhouse.gateway.mlflow.request_scope import RequestScope, Row
from trainhouse.gateway.mlflow.version_files import cleaned
from trainhouse.scheduler.core.registry.registry_state import ModelEntry

Fields = dict[str, Any]
_RUN: Final = re.compile(r"runs:/([A-Za-z0-9][A-Za-z0-9._:-]{0,127})(?:/(.*))?")
_CHECKPOINT: Final = re.compile(r"checkpoints/([0-9]{1,10})")
_LOGGED: Final = re.compile(r"models:/(m-[0-9a-f]{32})")
PROXY: Final = "mlflow-artifacts:/"


async def fields_of_source(desk: RequestScope, model: ModelEntry, source: str, run_id: str | None, model_id: str | None) -> Fields:
    """Fields of the registration of a version: its content, or its job and commit, and tags. Raises MlflowError."""
    logged = _LOGGED.fullmatch(source)
    if logged is not None or (model_id and is_model_id(model_id)):
        return await _of_logged_model(desk, model, logged[1] if logged is not None else str(model_id))
    if source.startswith(PROXY):
        keeper, path = placed(source.removeprefix(PROXY))
        if is_model_id(keeper):
            return await _of_logged_model(desk, model, keeper)
        return await _of_run(desk, model, await desk.run(keeper), path)
    if source.startswith("models:/"):
        raise invalid(f"{source[:300]!r} is no version: name one by its number, `models:/NAME/3`, or a logged model, `models:/m-ID`")
    named = _RUN.fullmatch(source)
    job_id = named[1] if named is not None else run_id if not source.startswith("runs:") else None
    if not job_id:
        raise invalid(
            "a version is a logged model (source `models:/m-ID`), files of a run (`runs:/RUN/PATH`), or the checkpoint of a job: "
            "`runs:/JOB` or `runs:/JOB/checkpoints/N`"
        )
    path = cleaned(named[2] or "") if named is not None else ""
    if checkpoint := _CHECKPOINT.fullmatch(path):
        return {"job_id": job_id, "commit": int(checkpoint[1])}
    return await _of_run(desk, model, await desk.run(job_id), path) if path else {"job_id": job_id, "commit": None}


async def _of_logged_model(desk: RequestScope, model: ModelEntry, model_id: str) -> Fields:
    row = await desk.logged_model(model_id)
    if row["status"] != "READY":
        raise invalid(f"logged model {model_id} is {row['status']}: a version is made of one that is READY; log it whole first")
    made = await _prepared(desk, model, row, await _trained_in(desk, row), "")
    return {"content": made.sha256, "tags": {LOGGED_MODEL: model_id}}


async def _trained_in(desk: RequestScope, logged: Row) -> str:
    """The run that made a logged model, which its client names: taken for it only where the same user began it, since whoever trained a
    version does not approve it. Else the logged model itself, which its user made."""
    model_id, run_id = str(logged["job_id"]), str(logged["source_run_id"])
    if not run_id:
        return model_id
    try:
        run = await desk.run(run_id)
    except MlflowError as error:
        if error.code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return model_id
    is_theirs = (run["user"], run["project"]) == (logged["user"], logged["project"]) and not run.get("is_mixed")
    return run_id if is_theirs else model_id


async def _of_run(desk: RequestScope, model: ModelEntry, run: Row, path: str) -> Fields:
    return {"content": (await _prepared(desk, model, run, run["job_id"], path)).sha256}


async def _prepared(desk: RequestScope, model: ModelEntry, keeper: Row, job_id: str, under: str) -> PreparedVersion:
    """Stores the content of what a run, or a logged model, has below a path."""
    project, what = keeper["project"], keeper["job_id"]
    if project != model.project:
        raise invalid(
            f"{what} is of project {project}, and model {model.name} of project {model.project}: use a token of project {project} alone, "
            "with which new models are of that project"
        )
    await desk.fresh(TRACKING)
    root = f"{under}/" if under else ""
    rows = [row for row in await known_files(desk, what) if row["path"].startswith(root)]
    found = {row["path"].removeprefix(root): row for row in rows}
    if MLMODEL not in found:
        raise invalid(f"{what} has no file {root}{MLMODEL}, which says how a model is loaded: log it by `log_model`, or name its folder")
    try:
        files = [ArtifactFile(path=path, bytes=row["size_bytes"], sha256=row["sha256"]) for path, row in found.items()]
        return await asyncio.to_thread(_stored, desk, project, job_id, files)
    except (InvalidStateError, DamagedError, ArtifactError, ModelContentError, ValueError) as error:
        raise invalid(f"{what} becomes no version: {error}") from error


def _stored(desk: RequestScope, project: str, job_id: str, files: Sequence[ArtifactFile]) -> PreparedVersion:
    described = next(file for file in files if file.path == MLMODEL)
    check_mlmodel_size(described.bytes)
    objects = desk.ports.objects
    key = object_key(project, described.sha256)
    text = b"".join(hashed_content(objects, key, described.sha256, described.bytes, MLMODEL))
    return prepare_files(objects, project, job_id, files, parts_of_mlmodel(text))
