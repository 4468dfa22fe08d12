"""A request's body on disk: counted, hashed and bounded while it comes in.

Holds: of a large body only pieces are in memory; one that says that it is too large is refused unread, one that turns out to be as soon as
it does.
Never: waits without end for a sender.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, cast

from starlette.requests import ClientDisconnect, Request

from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.limits.request_limits import refuse_declared, too_large

IN_MEMORY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Spooled:
    """A body that came whole. `file` is open for as long as the block that it was made for."""

    file: IO[bytes]
    size_bytes: int
    sha256: str


@asynccontextmanager
async def spooled(request: Request, most_bytes: int, patience_s: float, way_out: str) -> AsyncIterator[Spooled]:
    """A request's body. Raises ProblemError 413, which tells the `way_out`, 408 when nothing comes for so long, 400 when it breaks off."""
    refuse_declared(request.scope, most_bytes, way_out)
    with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as made:
        file = cast(IO[bytes], made)
        size_bytes, sha256 = await received(request.stream(), file, most_bytes, patience_s, way_out)
        yield Spooled(file, size_bytes, sha256)


async def received(chunks: AsyncIterator[bytes], file: IO[bytes], most_bytes: int, patience_s: float, way_out: str) -> tuple[int, str]:
    """Writes chunks to a file; their size and hash. Raises as `spooled` does."""
    size_bytes, digest = 0, hashlib.sha256()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(chunks, None), patience_s)
        except TimeoutError as error:
            raise ProblemError(408, "Too slow", f"nothing of the body came for {patience_s:g} s: send it again") from error
        except ClientDisconnect as error:
            raise ProblemError(400, "Cut off", "the connection broke before the body was whole: send it again") from error
        if chunk is None:
            return size_bytes, digest.hexdigest()
        size_bytes += len(chunk)
        if size_bytes > most_bytes:
            raise too_large(most_bytes, way_out)
        digest.update(chunk)
        await asyncio.to_thread(file.write, chunk)
