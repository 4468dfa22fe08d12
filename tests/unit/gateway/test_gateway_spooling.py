"""Large bodies as they come in: counted, bounded, and not waited for without end."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Sequence

import pytest
from starlette.requests import ClientDisconnect

from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.limits.spooling import received


def taken(chunks: Sequence[bytes], pause_s: float = 0.0, patience_s: float = 30.0, broken: bool = False) -> tuple[int, str, bytes]:
    """Size, hash and content of a body of at most 100 bytes."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            await asyncio.sleep(pause_s)
            yield chunk
        if broken:
            raise ClientDisconnect

    file = io.BytesIO()
    size, digest = asyncio.run(received(body(), file, 100, patience_s, "send less"))
    return size, digest, file.getvalue()


def test_a_body_is_known_by_what_came() -> None:
    chunks = [b"a" * 60, b"", b"b" * 40]
    whole = b"".join(chunks)
    assert taken(chunks) == (100, hashlib.sha256(whole).hexdigest(), whole)


def test_a_body_beyond_its_bound_is_refused_with_the_way_out() -> None:
    with pytest.raises(ProblemError, match="100 bytes at most: send less") as refused:
        taken([b"a" * 60] * 1000)
    assert refused.value.status == 413


def test_a_sender_that_stops_is_not_waited_for() -> None:
    with pytest.raises(ProblemError) as refused:
        taken([b"a"], pause_s=20, patience_s=0.05)
    assert refused.value.status == 408


def test_a_sender_that_goes_away_is_no_fault_of_the_gateway() -> None:
    with pytest.raises(ProblemError) as refused:
        taken([b"a"], broken=True)
    assert refused.value.status == 400
