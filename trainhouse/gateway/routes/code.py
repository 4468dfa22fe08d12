"""Code of jobs, for clients that do not reach the object store: archives by the hash of their content.

Holds: what is stored under a hash has that hash: it is counted while it comes in, and nothing is stored where it differs; a body has a
bound, and lies on disk, not in memory, meanwhile.
Never: unpacks or runs anything; tells what else is in the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Annotated, BinaryIO, TypeVar, cast

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel

from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.s3 import S3ObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.gateway.auth import Submitter
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import Problem
from trainhouse.gateway.problems import busy, not_found

T = TypeVar("T")
router = APIRouter(prefix="/v1/code", tags=["code"])

MAX_CODE_BYTES = 256 * 1024 * 1024
MAX_DIFF_BYTES = 16 * 1024 * 1024
IN_MEMORY_BYTES = 4 * 1024 * 1024
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the archive (tar.gz).")]
Commit = Annotated[str, Query(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$", description="The commit that the difference is from.")]


class Stored(BaseModel):
    """Where it lies: what a spec's `code` names."""

    uri: str
    size_bytes: int


@router.get("/{sha256}")
async def known(sha256: Sha256, request: Request, _: Submitter) -> Stored:
    """Whether an archive is there already."""
    objects = store_of(request)
    found = await _asked(objects.stat, _key(sha256))
    if found is None:
        raise not_found(f"code {sha256}")
    return Stored(uri=objects.uri(_key(sha256)), size_bytes=found.size_bytes)


@router.put("/{sha256}", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}, "required": True}})
async def put(sha256: Sha256, request: Request, here: Here, _: Submitter) -> Stored:
    """Stores an archive under the hash of its content. Repeating it is harmless."""
    objects = store_of(request)
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        size, digest = await received(request.stream(), cast(BinaryIO, file), MAX_CODE_BYTES, here.settings.body_time_s)
        if digest != sha256:
            raise Problem(422, "Another content", f"the body's SHA-256 is {digest}, not {sha256}: nothing was stored")
        file.seek(0)
        await _asked(objects.put_if_absent, _key(sha256), await asyncio.to_thread(file.read))
    return Stored(uri=objects.uri(_key(sha256)), size_bytes=size)


@router.put("/{sha256}/diff", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}, "required": True}})
async def put_diff(sha256: Sha256, git_commit: Commit, request: Request, here: Here, _: Submitter) -> Stored:
    """Stores what an archive's folder differs from a git commit, as a patch for people."""
    objects = store_of(request)
    if await _asked(objects.stat, _key(sha256)) is None:
        raise not_found(f"code {sha256}")
    key = f"code/{sha256}.{git_commit}.diff"
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        size, _digest = await received(request.stream(), cast(BinaryIO, file), MAX_DIFF_BYTES, here.settings.body_time_s)
        file.seek(0)
        await _asked(objects.put_if_absent, key, await asyncio.to_thread(file.read))
    return Stored(uri=objects.uri(key), size_bytes=size)


async def received(chunks: AsyncIterator[bytes], file: BinaryIO, limit_bytes: int, patience_s: float) -> tuple[int, str]:
    """Writes a body to a file; its size and hash. Raises Problem 413, or 408 when nothing comes for so long."""
    size, digest = 0, hashlib.sha256()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(chunks, None), patience_s)
        except TimeoutError as error:
            raise Problem(408, "Too slow", f"nothing of the body came for {patience_s:g} s") from error
        if chunk is None:
            return size, digest.hexdigest()
        size += len(chunk)
        if size > limit_bytes:
            raise Problem(413, "Too large", f"the body has more than {limit_bytes / 2**20:.0f} MiB: name large files in .gitignore")
        digest.update(chunk)
        await asyncio.to_thread(file.write, chunk)


def store_of(request: Request) -> S3ObjectStore:
    """The object store of this app, made at its first use."""
    state = request.app.state
    if not hasattr(state, "code_store"):
        state.code_store = S3ObjectStore(StoreSettings())
    return cast(S3ObjectStore, state.code_store)


async def _asked(call: Callable[..., T], *arguments: object) -> T:
    """A call of the store, beside the event loop. Raises Problem 503."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except CheckpointError as error:
        raise busy("the object store does not answer; try again in a moment") from error


def _key(sha256: str) -> str:
    return f"code/{sha256}.tar.gz"
