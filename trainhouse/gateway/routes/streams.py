"""Live streams over HTTP: of one job, and of the whole fleet's statuses.

Holds: a stream goes on behind Last-Event-ID; a reader that takes nothing for some seconds is let go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here
from trainhouse.gateway.live.hub import EVENT, KINDS, LOG, METRICS, STATUS, Watcher
from trainhouse.gateway.live.messages import Place
from trainhouse.gateway.live.stream import FleetStream, JobStream
from trainhouse.gateway.problems import busy
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.routes.jobs import COLUMNS, JobPath, visible, visible_job

router = APIRouter(prefix="/v1", tags=["live"], dependencies=[After])

MOST_MISSED = 10_000
STREAM = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventKind(StrEnum):
    """A kind of events."""

    STATUS = STATUS
    METRICS = METRICS
    EVENT = EVENT
    LOG = LOG


LastId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=128, description="The last id that was got: what followed it comes first.")
]
DECLARED: dict[int | str, dict[str, object]] = {200: {"content": {STREAM: {}}, "description": "Events, for as long as the client reads."}}


class EventStream(StreamingResponse):
    """A stream whose sends are bounded in time."""

    media_type = STREAM

    def __init__(self, parts: AsyncIterator[bytes], send_s: float, status_code: int = 200) -> None:
        super().__init__(parts, status_code, headers=HEADERS)
        self._send_s = send_s

    async def stream_response(self, send: Send) -> None:
        async def bounded(message: Message) -> None:
            await asyncio.wait_for(send(message), self._send_s)

        try:
            await super().stream_response(bounded)
        except TimeoutError:
            return  # the client does not read: the socket's own timeout closes the connection


@router.get("/training-jobs/{job_id}/stream", response_class=EventStream, responses=DECLARED)
async def job_stream(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    include: Annotated[list[EventKind] | None, Query(description="Only these kinds of events; all by default.")] = None,
    last_id: LastId = None,
) -> EventStream:
    """A job, live: `status` (the job whole), `metrics`, `log` and `event`; `cut` says why the stream ends.

    It begins now; with the Last-Event-ID `s-1.m-1.l-1.e0`, at the job's beginning.
    """
    kinds = frozenset(str(kind) for kind in include or KINDS)
    watcher = _join(here, job_id, kinds)
    try:
        job = await visible_job(here, principal, job_id)
    except BaseException:
        here.hub.leave(watcher)
        raise
    stream = JobStream(here.reader, principal, watcher, job, here.rights_over)
    return EventStream(_leaving(here, watcher, _job_parts(here, stream, last_id)), here.settings.stream_send_s)


@router.get("/stream", response_class=EventStream, responses=DECLARED)
async def fleet_stream(here: Here, principal: Viewer, last_id: LastId = None) -> EventStream:
    """The statuses of all jobs that the caller sees, as they change; only the newest of a job where several wait."""
    watcher = _join(here, None, frozenset({STATUS}))
    try:
        missed = await _missed(here, principal, last_id)
    except BaseException:
        here.hub.leave(watcher)
        raise
    stream = FleetStream(here.reader, principal, watcher, here.rights_over, missed)
    return EventStream(_leaving(here, watcher, stream.parts()), here.settings.stream_send_s)


def _join(here: Gateway, job_id: str | None, kinds: frozenset[str]) -> Watcher:
    if here.hub.full:
        raise busy(f"{len(here.hub)} streams are open already, as many as this gateway serves; try again later")
    return here.hub.join(job_id, kinds)


async def _job_parts(here: Gateway, stream: JobStream, last_id: str | None) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    await here.hub.ready(stream.watcher)
    async for part in stream.parts(Place.parse(last_id) if last_id else None):
        yield part


async def _leaving(here: Gateway, watcher: Watcher, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for part in parts:
            yield part
    finally:
        here.hub.leave(watcher)


async def _missed(here: Gateway, principal: Principal, last_id: str | None) -> list[Row]:
    if last_id is None or not last_id.isascii() or not last_id.isdigit() or int(last_id) > time.time_ns() // 1_000_000:
        return []
    where = visible(principal)
    where.add("updated_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')", since=int(last_id))
    rows = await here.reader.rows(
        f"SELECT {COLUMNS} FROM jobs WHERE {where.text} ORDER BY updated_at DESC LIMIT {MOST_MISSED}", where.values
    )
    await redacted(here.reader, principal, rows, ("reason",))
    return rows[::-1]
