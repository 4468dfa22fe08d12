"""Code of jobs, for clients that do not reach the object store: archives, and what they differ from a commit, by the hash of their content.

Holds: what is stored under a hash has that hash, so nobody's code or difference can stand in for another's: it is counted while it comes
in, and nothing is stored where it differs; a body has a bound, and lies on disk, not in memory, meanwhile.
Never: unpacks or runs anything; tells what else is in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel

from trainhouse.checkpointing.chain.references import TAGS_S
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.gateway.auth.authentication import Submitter
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.limits.spooling import spooled
from trainhouse.gateway.problems import busy, not_found

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

T = TypeVar("T")
router = APIRouter(prefix="/v1/code", tags=["code"])

MAX_CODE_BYTES = 256 * 1024 * 1024
MAX_DIFF_BYTES = 16 * 1024 * 1024
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the content.")]
BYTES: dict[str, Any] = {"requestBody": {"content": {"application/octet-stream": {}}, "required": True}}


class Stored(BaseModel):
    """Stored archive; `uri` is the value for a spec's `code`."""

    uri: str
    size_bytes: int


@router.get("/{sha256}")
async def known(sha256: Sha256, request: Request, _: Submitter) -> Stored:
    """Whether an archive is there already."""
    objects = store_of(request)
    found = await asked(objects.stat, _key(sha256))
    if found is None:
        raise not_found(f"code {sha256}")
    return Stored(uri=objects.uri(_key(sha256)), size_bytes=found.size_bytes)


@router.put("/{sha256}", openapi_extra=BYTES)
async def put(sha256: Sha256, request: Request, here: Here, principal: Submitter) -> Stored:
    """Stores an archive (tar.gz) under the hash of its content. Repeating it is harmless."""
    await _room(here, principal)
    return await _stored(request, here, _key(sha256), sha256, MAX_CODE_BYTES)


@router.put("/diffs/{sha256}", openapi_extra=BYTES)
async def put_diff(sha256: Sha256, request: Request, here: Here, principal: Submitter) -> Stored:
    """Stores what an archive's folder differs from its git commit, as a patch for people, under the hash of its content."""
    await _room(here, principal)
    return await _stored(request, here, f"code/{sha256}.diff", sha256, MAX_DIFF_BYTES)


async def _room(here: Gateway, principal: Principal) -> None:
    """Raises ProblemError 403 where the sender may write in no project, 429 where none of them has room: which one it is for, its job
    says."""
    writing = principal.writing()
    if writing.everywhere:
        return
    own = writing.projects
    if not own:
        raise ProblemError(403, "Forbidden", f"{principal.sub} may only read projects: ask a maintainer of one to be made a submitter")
    await here.storage.needs_room(*own)


async def _stored(request: Request, here: Gateway, key: str, sha256: str, most_bytes: int) -> Stored:
    """Stores a body. Raises ProblemError 422 where it is another one than its address says."""
    objects = store_of(request)
    async with spooled(request, most_bytes, here.settings.body_time_s, "name large files in .trainhouseignore") as body:
        if body.sha256 != sha256:
            raise ProblemError(422, "Another content", f"the body's SHA-256 is {body.sha256}, not {sha256}: nothing was stored")
        if await asked(objects.stat, key) is None:
            await asked(objects.put_file, key, body.file)
    return Stored(uri=objects.uri(key), size_bytes=body.size_bytes)


def store_of(request: Request) -> S3ObjectStore:
    """The object store of this app, made at its first use."""
    return _store(request, "code_store")


def tags_store_of(request: Request) -> S3ObjectStore:
    """The same for lists, which do not wait long for it."""
    return _store(request, "tags_store", TAGS_S)


def _store(request: Request, name: str, within_s: float | None = None) -> S3ObjectStore:
    state = request.app.state
    if not hasattr(state, name):
        from trainhouse.checkpointing.stores.s3 import S3ObjectStore  # boto3 is slow to import, and not needed to start

        settings = StoreSettings()
        setattr(state, name, S3ObjectStore(settings if within_s is None else settings.within(within_s)))
    return cast("S3ObjectStore", getattr(state, name))


async def asked(call: Callable[..., T], *arguments: object) -> T:
    """A call of the store, beside the event loop. Raises ProblemError 503."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except CheckpointError as error:
        raise busy("the object store does not answer; try again in a moment") from error


def _key(sha256: str) -> str:
    return f"code/{sha256}.tar.gz"
