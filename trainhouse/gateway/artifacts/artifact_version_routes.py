"""Artifacts over HTTP: files by their hash, then the version that they make; lists, manifests and contents.

Holds: an artifact of a project that its asker may not see does not exist for it, whichever hash is asked for, and a version is made of
files that were sent to its own project alone. A file is stored under the hash that it has. What is downloaded is never shown as a page of
this server.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.artifacts.artifact_versions import ArtifactVersion
from trainhouse.checkpointing.errors import DamagedError, HeldError, NoArtifactError
from trainhouse.events import JobId
from trainhouse.events.model.artifact import (
    BY_JOB,
    BY_USER,
    MOST_FILES,
    ArtifactError,
    ArtifactFile,
    ArtifactKind,
    ArtifactManifest,
    ArtifactName,
    ArtifactStored,
    facts_of,
)
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.labels import Label
from trainhouse.events.wire.topics import TRACKING
from trainhouse.gateway.answers import PIECE_BYTES, Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Here, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.limits.request_limits import declared_bytes
from trainhouse.gateway.limits.spooling import spooled
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.queries.listing import Cursor, Limit, Order, millis, page
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.code import BYTES, asked, store_of
from trainhouse.gateway.routes.jobs import Text, visible_job

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

T = TypeVar("T")
router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"])

Name = Annotated[ArtifactName, Path(description="The artifact's name.")]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the version's manifest, or of a file.")]
Project = Annotated[Label, Query(description="The project that it belongs to.")]
FilePath = Annotated[str, Path(min_length=1, max_length=1024, description="Path of a file in the artifact.")]
OCTETS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file, verified against its hash."},
    206: {
        "content": {"application/octet-stream": {}},
        "description": "The range that `Range: bytes=FIRST-LAST` asks for, not verified: the hash is of the whole file.",
    },
}
_COLUMNS = "name, sha256, kind, project, job_id, size_bytes, files, created_by, at, run_deleted"
_ORDER = Order((millis("at"), ("name", "String"), ("sha256", "String"), ("job_id", "String")), descending=True)


class StoredFile(BaseModel):
    """File that is stored; a version names it by its hash."""

    sha256: Annotated[str, Field(description="SHA-256 of the file, in hexadecimal")]
    size_bytes: Annotated[int, Field(description="size of the file, in bytes")]


class NewVersion(BaseModel):
    """Files that make a version, each sent before."""

    kind: Annotated[ArtifactKind, Field(description="tokenizer, preprocessing, model, file, or another word")]
    files: Annotated[tuple[ArtifactFile, ...], Field(min_length=1, max_length=MOST_FILES, description="files, in any order")]
    job_id: Annotated[JobId | None, Field(description="job or run that it is stored for; absent: for none")] = None


class StoredVersion(BaseModel):
    """Version that is whole in the store."""

    name: Annotated[str, Field(description="name of the artifact")]
    sha256: Annotated[str, Field(description="SHA-256 of the manifest, in hexadecimal: the version's id")]
    size_bytes: Annotated[int, Field(description="bytes of its files")]
    files: Annotated[int, Field(description="number of its files")]
    event_id: Annotated[str, Field(description="id of the event that records it")]


@router.get("")
async def artifacts(
    here: Here,
    principal: Viewer,
    project: Text = None,
    name: Text = None,
    kind: Text = None,
    job_id: Annotated[str | None, Query(max_length=128, description="Only those that this job or run stored.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Json:
    """Versions of artifacts, the newest first. `run_deleted`: 1 where the run that stored it was deleted, so that a sweep of the store
    takes it a day later."""
    where = Where()
    where.visible(principal)
    for column, value in (("project", project), ("name", name), ("kind", kind), ("job_id", job_id)):
        where.equal(column, value)
    return Json((await page(here.reader, _COLUMNS, "artifact_versions", where, _ORDER, limit, cursor)).answer())


@router.put("/files/{sha256}", openapi_extra=BYTES)
async def put_file(sha256: Sha256, request: Request, here: Here, principal: Submitter, project: Project = DEFAULT_PROJECT) -> StoredFile:
    """Stores a file under the hash of its content, for versions of the same project. Repeating it is harmless; one that no version names
    counts towards the project's storage here, and goes with a sweep of the store a day later."""
    _may_write(principal, project)
    artifacts = ArtifactStore(store_of(request), project)
    way_out = "split it, or raise artifact_bytes of the gateway's settings"
    declared = declared_bytes(request.scope)
    async with (
        here.storage.room_for_file(project, declared, lambda: asked(artifacts.unnamed_bytes)) as holds,
        spooled(request, here.settings.artifact_bytes, here.settings.body_time_s, way_out) as body,
    ):
        if body.sha256 != sha256:
            raise ProblemError(422, "Another content", f"the body's SHA-256 is {body.sha256}, not {sha256}: nothing was stored")
        await holds(body.size_bytes)
        await asked(artifacts.put_file, body.file, sha256, body.size_bytes)
        here.storage.stored_unnamed(project, body.size_bytes)
    return StoredFile(sha256=sha256, size_bytes=body.size_bytes)


@router.post("/{name}", status_code=201)
async def put_version(
    name: Name, new: NewVersion, request: Request, here: Here, principal: Submitter, project: Project = DEFAULT_PROJECT
) -> StoredVersion:
    """Makes a version of files that were sent before. Refused where one of them is not in the project's store. Repeating it is harmless."""
    _may_write(principal, project)
    if new.job_id is not None:
        job = await visible_job(here, principal, str(new.job_id))
        if job["project"] != project:
            raise ProblemError(422, "Another project", f"job {new.job_id} is of project {job['project']}, not {project}")
    manifest = await _found(_made, new)
    by = f"{BY_JOB}{new.job_id}" if new.job_id is not None else BY_USER
    await _found(_name, ArtifactStore(store_of(request), project), name, manifest, by)
    event = _event(manifest, manifest.sha256(), name, project, principal, new.job_id)
    sent = await here.bus.send(TRACKING, event, secrets.token_hex(16))
    await asked(ArtifactStore(store_of(request), project).settle_files, frozenset(file.sha256 for file in manifest.files))
    here.accepted(request, principal, sent, target=f"{name}@sha256:{manifest.sha256()}", project=project)
    sizes = {"size_bytes": manifest.bytes, "files": len(manifest.files)}
    return StoredVersion(name=name, sha256=manifest.sha256(), event_id=sent.event_id, **sizes)


@router.get("/{name}/{sha256}")
async def version(name: Name, sha256: Sha256, request: Request, principal: Viewer, project: Project = DEFAULT_PROJECT) -> Json:
    """The manifest of a version: its files with their sizes and hashes."""
    _may_see(principal, project)
    known, manifest = await _found(_read, ArtifactStore(store_of(request), project), name, sha256)
    about = {"name": name, "sha256": sha256, "project": project, "stored_at_s": known.stored_at_s, "named_by": list(known.by)}
    return Json(about | {"size_bytes": manifest.bytes} | manifest.model_dump(mode="json"))


@router.get("/{name}/{sha256}/files/{path:path}", response_class=StreamingResponse, responses=OCTETS)
async def content(
    name: Name, sha256: Sha256, path: FilePath, request: Request, principal: Viewer, project: Project = DEFAULT_PROJECT
) -> Response:
    """The content of one file, verified against its hash. `Range: bytes=FIRST-LAST` gives a part of it, which is not verified: the hash is
    of the whole file, so compare it yourself once you have all parts; the `ETag` is the hash."""
    _may_see(principal, project)
    objects = store_of(request)
    artifacts = ArtifactStore(objects, project)
    _, manifest = await _found(_read, artifacts, name, sha256)
    file = next((file for file in manifest.files if file.path == path), None)
    if file is None:
        raise not_found(f"file {path} of artifact {name}@sha256:{sha256}")
    headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff", "Accept-Ranges": "bytes"}
    headers["ETag"] = f'"{file.sha256}"'
    span = _span(request.headers.get("range"), file.bytes)
    if span is not None:
        first, last = span
        await _found(_needs, artifacts, file)
        part = _part(objects, object_key(project, file.sha256), first, last)
        headers |= {"Content-Length": str(last - first + 1), "Content-Range": f"bytes {first}-{last}/{file.bytes}"}
        return StreamingResponse(part, 206, headers=headers, media_type="application/octet-stream")
    pieces = artifacts.content(file)
    begun = await _found(next, pieces, b"")
    headers["Content-Length"] = str(file.bytes)
    return StreamingResponse(chain([begun], pieces), headers=headers, media_type="application/octet-stream")


@router.delete("/{name}/{sha256}")
async def delete(
    name: Name, sha256: Sha256, request: Request, here: Here, principal: Submitter, project: Project = DEFAULT_PROJECT
) -> Json:
    """Takes the name from a version; its bytes go with a sweep of the store, a day later. Refused while something else names it."""
    _may_write(principal, project)
    artifacts = ArtifactStore(store_of(request), project)
    known, manifest = await _found(_to_forget, artifacts, name, sha256)
    # The event first: cut off in between, the version has its name still, and this can be repeated.
    for by in known.by:
        job_id = JobId.parse(by.removeprefix(BY_JOB)) if by.startswith(BY_JOB) else None
        event = _event(manifest, sha256, name, project, principal, job_id, deleted=True)
        sent = await here.bus.send(TRACKING, event, secrets.token_hex(16))
        here.accepted(request, principal, sent, target=str(known), project=project)
    await _found(artifacts.forget, known)
    return Json({"name": name, "sha256": sha256})


def _may_see(principal: Principal, project: str) -> None:
    if not principal.sees(project):
        raise not_found(f"artifact of project {project}")


def _may_write(principal: Principal, project: str) -> None:
    _may_see(principal, project)
    if not principal.writing().sees(project):
        why = f"{principal.sub} may only read project {project}: ask a maintainer of it to be made a submitter"
        raise ProblemError(403, "Forbidden", why)


def _event(
    manifest: ArtifactManifest | None,
    sha256: str,
    name: str,
    project: str,
    principal: Principal,
    job_id: JobId | None,
    deleted: bool = False,
) -> ArtifactStored:
    about = {"name": name, "project": project, "job_id": job_id, "user": principal.sub[:256], "deleted": deleted, "at_ms": now_ms()}
    return ArtifactStored.model_validate(facts_of(sha256, manifest) | about)


def _name(artifacts: ArtifactStore, name: str, manifest: ArtifactManifest, by: str) -> None:
    with artifacts.storing():
        artifacts.name(name, manifest, by)


def _read(artifacts: ArtifactStore, name: str, sha256: str) -> tuple[ArtifactVersion, ArtifactManifest]:
    return artifacts.find(f"{name}@sha256:{sha256}"), artifacts.manifest(sha256)


def _to_forget(artifacts: ArtifactStore, name: str, sha256: str) -> tuple[ArtifactVersion, ArtifactManifest | None]:
    known = artifacts.find(f"{name}@sha256:{sha256}")
    artifacts.check_free(known)
    return known, artifacts.readable_manifest(sha256)


def _needs(artifacts: ArtifactStore, file: ArtifactFile) -> None:
    if not artifacts.has(file):
        raise DamagedError(f"{file.path} is missing from the store, or of another size; store the artifact again", file.sha256)


def _made(new: NewVersion) -> ArtifactManifest:
    try:
        return ArtifactManifest.of(new.kind, new.files)
    except ArtifactError as error:
        raise ProblemError(422, "Invalid artifact", f"{error}: nothing was stored") from error


async def _found(call: Callable[..., T], *arguments: object) -> T:
    """A call of the artifact store, beside the event loop. Raises ProblemError."""

    def explained() -> T:
        try:
            return call(*arguments)
        except NoArtifactError as error:
            raise ProblemError(404, "Not found", str(error)) from error
        except HeldError as error:
            raise ProblemError(409, "Kept", str(error)) from error
        except DamagedError as error:
            raise ProblemError(422, "Damaged", str(error)) from error
        except ArtifactError as error:
            raise ProblemError(422, "Invalid artifact", str(error)) from error

    return await asked(explained)


def _span(text: str | None, size_bytes: int) -> tuple[int, int] | None:
    """First and last byte of a range; None for the whole. Raises ProblemError 416."""
    if text is None:
        return None
    first, dash, last = text.removeprefix("bytes=").partition("-")
    digits = all(not part or (part.isascii() and part.isdigit() and len(part) <= 19) for part in (first, last))
    if text.startswith("bytes=") and dash and digits and (first or last):
        begin = int(first) if first else max(0, size_bytes - int(last))
        end = min(int(last), size_bytes - 1) if first and last else size_bytes - 1
        if begin <= end:
            return begin, end
    headers = {"Content-Range": f"bytes */{size_bytes}"}
    raise ProblemError(416, "No such range", f"Range: ask for bytes=FIRST-LAST of {size_bytes} bytes, one range at a time", headers=headers)


def _part(objects: S3ObjectStore, key: str, first: int, last: int) -> Iterator[bytes]:
    for start in range(first, last + 1, PIECE_BYTES):
        yield objects.get_range(key, start, min(PIECE_BYTES, last + 1 - start))
