"""Artifacts by MLflow's proxy: their bytes go to the project's files under their hash, and an event names them. Runs that log equal files
share one; logged models have theirs as runs do, and versions of models what their contents name.

Holds: an upload is read once, within a bound, and is not there before its event is; a path stays within its run. What is downloaded is
never shown as a page of this server.
"""

import asyncio
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.events import JobId
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.gateway.artifacts.run_files import run_file
from trainhouse.gateway.context import now_ms
from trainhouse.gateway.limits.request_limits import declared_bytes
from trainhouse.gateway.limits.spooling import spooled
from trainhouse.gateway.mlflow import schemas
from trainhouse.gateway.mlflow.errors import MlflowError, MlflowRoute, invalid, missing
from trainhouse.gateway.mlflow.request_scope import Reading, RequestScope, Row, Writing
from trainhouse.gateway.mlflow.version_files import cleaned, version_of, version_placed

router = APIRouter(prefix="/api/2.0", route_class=MlflowRoute)
Json = dict[str, Any]
MAX_LISTED = 100_000
MAX_DELETED = 1000
_PLACE = re.compile(r"^(?P<experiment>[0-9]{1,18})/(?P<run>[A-Za-z0-9][A-Za-z0-9._:-]{0,127})/artifacts(?:/(?P<path>.*))?$")
_COLUMNS = "path, uri, sha256, size_bytes"
_PATH = Annotated[str, Query(max_length=2048)]


@router.put("/mlflow-artifacts/artifacts/{place:path}")
async def upload(place: str, request: Request, desk: Writing) -> Json:
    """Stores a file of a run; one of the same path is replaced."""
    run_id, path = placed(place)
    if not path:
        raise invalid("an artifact needs a path within its run")
    row = await desk.active_keeper(run_id)
    project, job_id = row["project"], row["job_id"]
    artifacts = ArtifactStore(desk.ports.objects, project)
    way_out = "log it in parts, or raise artifact_bytes of the gateway's settings"
    declared = declared_bytes(request.scope)
    async with (
        desk.storage.room_for_file(project, declared, partial(asyncio.to_thread, artifacts.unnamed_bytes)) as holds,
        spooled(request, desk.settings.artifact_bytes, desk.settings.body_time_s, way_out) as body,
    ):
        await holds(body.size_bytes)
        key = await asyncio.to_thread(artifacts.put_run_file, job_id, path, body.file, body.sha256, body.size_bytes)
    found = {"uri": desk.ports.objects.uri(key), "sha256": body.sha256, "size_bytes": body.size_bytes}
    await desk.send(ArtifactLogged(job_id=JobId(job_id), path=path, **found, at_ms=now_ms()))
    await asyncio.to_thread(artifacts.settle_run_file, job_id, path, body.sha256)
    return {}


@router.get("/mlflow-artifacts/artifacts")
async def listed_by_place(desk: Reading, path: _PATH = "") -> Json:
    """Lists the direct entries of an artifact location; names are relative to it."""
    version, run_id, under = None, "", ""
    if (place := version_placed(path)) is not None:
        version, under = await version_of(desk, *place[:3]), place[3]
    else:
        run_id, under = placed(path)
    root = f"{under}/" if under else ""
    files = version.listed(under) if version is not None else await files_of(desk, await desk.keeper(run_id), under)
    return {"files": [f | {"path": f["path"].removeprefix(root)} for f in files]}


@router.get("/mlflow/artifacts/list")
async def listed(desk: Reading, run_id: _PATH = "", run_uuid: _PATH = "", path: _PATH = "") -> Json:
    """Lists the direct entries of a run's folder."""
    row = await desk.run(run_id or run_uuid)
    files = await files_of(desk, row, cleaned(path))
    return {"root_uri": schemas.artifact_root(row["experiment_id"], row["job_id"]), "files": files}


@router.get("/mlflow-artifacts/artifacts/{place:path}")
async def download(place: str, desk: Reading) -> StreamingResponse:
    """The bytes of a file."""
    if (of_version := version_placed(place)) is not None:
        return await _of_version(desk, *of_version)
    run_id, path = placed(place)
    row = await desk.keeper(run_id)
    sql = f"SELECT {_COLUMNS} FROM artifacts WHERE job_id = {{id:String}} AND path = {{path:String}} LIMIT 1"
    found = await desk.reader.one(sql, {"id": row["job_id"], "path": path})
    if found is None:
        raise missing(f"artifact {path} of run {run_id}")
    try:
        stored = await asyncio.to_thread(run_file, desk.ports.objects, row["job_id"], row["project"], found)
    except DamagedError as error:
        raise MlflowError("DATA_LOSS", f"artifact {path} of run {run_id}: {error}") from error
    if stored is None:
        raise missing(f"artifact {path} of run {run_id}")
    return _sent(stored, found["size_bytes"])


async def _of_version(desk: RequestScope, word: str, name: str, number: str, path: str) -> StreamingResponse:
    """The bytes of a file of a model's version."""
    version = await version_of(desk, word, name, number)
    found = version.file(path)
    try:
        stored = await asyncio.to_thread(version.opened, desk.ports.objects, found)
    except DamagedError as error:
        raise MlflowError("DATA_LOSS", f"file {path} of version {number} of model {name!r}: {error}") from error
    return _sent(stored, found.bytes)


def _sent(stored: Iterator[bytes], size_bytes: int) -> StreamingResponse:
    headers = {"Content-Length": str(size_bytes), "Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(stored, headers=headers, media_type="application/octet-stream")


@router.delete("/mlflow-artifacts/artifacts/{place:path}")
async def delete(place: str, desk: Writing) -> Json:
    """A file, or all files of a folder, leave the run; a sweep removes their bytes a day later, where nothing else names them."""
    run_id, path = placed(place)
    row = await desk.active_keeper(run_id)
    found = [f for f in await known_files(desk, row["job_id"]) if not path or f["path"] == path or f["path"].startswith(f"{path}/")]
    if len(found) > MAX_DELETED:
        raise invalid(f"{len(found)} artifacts at once are too many; delete folders of at most {MAX_DELETED}")
    for file in found:
        await desk.send(ArtifactLogged(job_id=JobId(row["job_id"]), **file, deleted=True, at_ms=now_ms()))
        await asyncio.to_thread(ArtifactStore(desk.ports.objects, row["project"]).settle_run_file, row["job_id"], file["path"], None)
    return {}


@router.api_route("/mlflow-artifacts/mpu/{place:path}", methods=["POST"])
@router.api_route("/mlflow-artifacts/presigned/{place:path}", methods=["GET"])
async def around_the_proxy(place: str, _: Reading) -> None:
    """Clients fall back to the proxy when they read these words."""
    raise MlflowError(
        "NOT_IMPLEMENTED", "Multipart upload is not supported for the current artifact repository; files go through the gateway"
    )


def placed(place: str) -> tuple[str, str]:
    """The run and the path within it of EXPERIMENT/RUN/artifacts/PATH. Raises MlflowError."""
    match = _PLACE.fullmatch(place.strip("/"))
    if match is None:
        raise missing("artifact there")
    return match["run"], cleaned(match["path"] or "")


async def files_of(desk: RequestScope, run: Row, under: str) -> list[Json]:
    """Direct entries of a folder of a run or a logged model."""
    return schemas.files_at(under, ((f["path"], f["size_bytes"]) for f in await known_files(desk, run["job_id"])))


async def known_files(desk: RequestScope, run_id: str) -> list[Row]:
    """All files of a run or a logged model."""
    sql = f"SELECT {_COLUMNS} FROM artifacts WHERE job_id = {{id:String}} ORDER BY path LIMIT {MAX_LISTED}"
    return await desk.reader.rows(sql, {"id": run_id})
