"""Images, tables, histograms, texts and audio of a job: what there is, those of a step, and their contents as pages may show them.

Holds: contents are a program's, so nothing of them runs: images and audio have fixed types by their endings, whatever is in them, and
come with a policy that allows nothing; texts and tables come as bounded JSON. SVG and HTML are no media. What an attempt logged anew at a
step takes the place of what was there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from trainhouse.checkpointing.errors import CheckpointError, DamagedError
from trainhouse.gateway.answers import Json
from trainhouse.gateway.artifacts.run_files import run_file
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import busy, not_found
from trainhouse.gateway.queries.sql_reader import Row
from trainhouse.gateway.routes.code import store_of
from trainhouse.gateway.routes.jobs import JobPath, visible_job

if TYPE_CHECKING:
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"])

Kind = Literal["image", "table", "histogram", "text", "audio"]
Key = Annotated[str, Query(min_length=1, max_length=1024, description="Key that it was logged under, as the list of media has it.")]
MediaPath = Annotated[str, Query(min_length=1, max_length=1024, description="Path among the job's files, as a list of media has it.")]
MOST_KEYS: Final = 500
MOST_STEPS: Final = 1000
MOST_SHOWN: Final = 200
MOST_BYTES: Final = 32 << 20
"""Of a file that is shown; larger ones can be downloaded by MLflow's client."""
MOST_TABLE_BYTES: Final = 2 << 20
"""Of a table that is parsed: JSON takes many times its length in memory."""
MOST_HISTOGRAM_BYTES: Final = 256 << 10
MOST_BINS: Final = 4096
WHOLES: Final = 2
"""Contents that are read whole at a time."""
CELL_CHARS: Final = 1000
MOST_TABLE_COLUMNS: Final = 100
FETCHES: Final = 8
TYPES: Final = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"} | {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Disposition": "inline",
    "Cache-Control": "private, max-age=3600",
}
OCTETS: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {} for kind in TYPES.values()}, "description": "An image, or audio."}}

_KEYS = f"""
SELECT kind, key, count() AS count, arraySort(groupUniqArray({MOST_STEPS})(ifNull(m.step, 0))) AS steps, isNull(any(m.step)) AS stepless,
    min(m.step) AS first_step, max(m.step) AS last_step
FROM media AS m WHERE job_id = {{job_id:String}} GROUP BY kind, key ORDER BY stepless, kind, key LIMIT {MOST_KEYS}
"""
# Of each rank and number the newest: an attempt that began anew logs the same steps again.
_NEWEST = "LIMIT 1 BY step, if(rank IS NULL, path, toString((rank, number)))"
_OF_STEP = f"""
SELECT path, m.step AS step, rank, number, at, size_bytes FROM media AS m
WHERE job_id = {{job_id:String}} AND kind = {{kind:String}} AND key = {{key:String}} AND ifNull(m.step, 0) = (
    SELECT max(ifNull(media.step, 0)) FROM media
    WHERE job_id = {{job_id:String}} AND kind = {{kind:String}} AND key = {{key:String}} AND ifNull(media.step, 0) <= {{step:UInt64}})
ORDER BY at DESC, path {_NEWEST}
"""
_SHOWN = f"SELECT * FROM ({_OF_STEP}) ORDER BY rank, number, at, path LIMIT {MOST_SHOWN}"
_HISTOGRAMS = """
SELECT path, uri, sha256, size_bytes, m.step AS step FROM media AS m
WHERE job_id = {job_id:String} AND kind = 'histogram' AND key = {key:String} AND ifNull(m.rank, 0) = {rank:UInt32} AND m.step IS NOT NULL
ORDER BY step, at DESC LIMIT 1 BY step
"""
# Of each of so many parts of the steps the last one.
_THINNED = f"""
WITH found AS ({_HISTOGRAMS}), span AS (SELECT min(found.step) AS low, max(found.step) AS high FROM found)
SELECT path, uri, sha256, size_bytes, step FROM found
ORDER BY step DESC
LIMIT 1 BY intDiv(step - (SELECT low FROM span), intDiv((SELECT high - low FROM span), {{columns:UInt32}}) + 1)
"""
# Media alone: other files of a job have routes of their own.
_ONE = """
SELECT path, uri, sha256, size_bytes, kind, m.step AS step FROM media AS m
WHERE job_id = {job_id:String} AND path = {path:String} AND kind IN {kinds:Array(String)} LIMIT 1
"""


class TablePart(BaseModel):
    """First rows of a table. Long cells are cut, and columns beyond the first are left out."""

    columns: list[str] = Field(description="names of its columns")
    rows: list[list[Any]] = Field(description="cells by row")
    total_rows: int = Field(description="rows that it has")
    total_columns: int = Field(description="columns that it has")


class TextPart(BaseModel):
    """Beginning of a text."""

    text: str = Field(description="the text, as far as it was asked for")
    total_bytes: int = Field(description="bytes that the file has")
    is_cut: bool = Field(description="whether there is more")


@router.get("/{job_id}/media")
async def media(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Keys of images, tables, histograms, texts and audio that a job or run logged, each with its steps."""
    await visible_job(here, principal, job_id)
    rows = await here.reader.rows(_KEYS, {"job_id": job_id})
    rows = [row for row in rows if not (principal.run and row["stepless"])]
    return Json({"items": [row | {"steps": [] if row["stepless"] else row["steps"]} for row in rows], "next_cursor": None})


@router.get("/{job_id}/media/items")
async def items(
    job_id: JobPath,
    here: Here,
    principal: Viewer,
    kind: Annotated[Kind, Query(description="Kind of it.")],
    key: Key,
    step: Annotated[int, Query(ge=0, le=2**63, description="Those of the last step until this one.")] = 2**63,
) -> Json:
    """Files of one key at one step: of all ranks, each as its newest attempt logged it."""
    await visible_job(here, principal, job_id)
    rows = await here.reader.rows(_SHOWN, {"job_id": job_id, "kind": kind, "key": key, "step": step})
    return Json({"items": rows, "next_cursor": None})


@router.get("/{job_id}/media/histograms")
async def histograms(
    job_id: JobPath,
    request: Request,
    here: Here,
    principal: Viewer,
    key: Key,
    rank: Annotated[int, Query(ge=0, le=2**32 - 1, description="The rank that logged them.")] = 0,
    columns: Annotated[int, Query(ge=1, le=200, description="At most so many steps, spread over all.")] = 100,
) -> Json:
    """Histograms of one key over steps: edges and counts of each."""
    job = await visible_job(here, principal, job_id)
    rows = await here.reader.rows(_THINNED, {"job_id": job_id, "key": key, "rank": rank, "columns": columns})
    turns = asyncio.Semaphore(FETCHES)

    async def one(row: Row) -> dict[str, Any] | None:
        if row["size_bytes"] > MOST_HISTOGRAM_BYTES:
            return None
        async with turns:
            content = await _content(store_of(request), job, row)
            return None if content is None else await asyncio.to_thread(_histogram, content, row["step"])

    found = await asyncio.gather(*(one(row) for row in rows))
    return Json({"items": sorted((each for each in found if each), key=lambda each: each["step"]), "next_cursor": None})


@router.get("/{job_id}/media/table")
async def table(
    job_id: JobPath,
    path: MediaPath,
    request: Request,
    here: Here,
    principal: Viewer,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many rows.")] = 100,
) -> TablePart:
    """The first rows of a table that was logged."""
    job, row = await _row(job_id, path, ("table",), here, principal)
    if row["size_bytes"] > MOST_TABLE_BYTES:
        why = (
            f"{path} has {row['size_bytes']} bytes, and tables of up to {MOST_TABLE_BYTES} are shown; "
            "its content is there as text, and to download by MLflow's client"
        )
        raise ProblemError(413, "Too large", why)
    async with _reading(request):
        found = await asyncio.to_thread(partial(_table, await _whole(job, row, request), limit))
    if found is None:
        raise ProblemError(
            422, "No table", f"{path} is JSON of another form: it needs columns and data, as pandas writes them by orient=split"
        )
    return found


@router.get("/{job_id}/media/text")
async def text(
    job_id: JobPath,
    path: MediaPath,
    request: Request,
    here: Here,
    principal: Viewer,
    limit: Annotated[int, Query(ge=1, le=200_000, description="At most so many characters.")] = 20_000,
) -> TextPart:
    """The beginning of a text that was logged."""
    # A table is a text too, for those that are no table, or too large for one.
    job, row = await _row(job_id, path, ("text", "table"), here, principal)
    async with _reading(request):
        content = await _whole(job, row, request)
        decoded = content[: 4 * limit + 4].decode("utf-8", "replace")
        return TextPart(text=decoded[:limit], total_bytes=len(content), is_cut=len(decoded) > limit or 4 * limit + 4 < len(content))


@router.get("/{job_id}/media/content", response_class=StreamingResponse, responses=OCTETS)
async def content(job_id: JobPath, path: MediaPath, request: Request, here: Here, principal: Viewer) -> StreamingResponse:
    """An image, or audio."""
    ending = path.rpartition(".")[2].lower()
    if ending not in TYPES:
        raise not_found(f"image or audio {path} of job {job_id}")
    job, row = await _row(job_id, path, ("image", "audio"), here, principal)
    found = await _opened(store_of(request), job, row)
    if found is None:
        raise not_found(f"image or audio {path} of job {job_id}")
    headers = HEADERS | {"Content-Length": str(row["size_bytes"]), "ETag": f'"{row["sha256"]}"'}
    return StreamingResponse(found, headers=headers, media_type=TYPES[ending])


async def _row(job_id: str, path: str, kinds: tuple[Kind, ...], here: Here, principal: Viewer) -> tuple[Row, Row]:
    """The job, and its file under a path, of one of these kinds of media. Raises ProblemError.

    A session of a link to the run sees what was logged at a step; the job's other files stay with those who have an account.
    """
    job = await visible_job(here, principal, job_id)
    row = await here.reader.one(_ONE, {"job_id": job_id, "path": path, "kinds": kinds})
    if row is None or (principal.run and row["step"] is None):
        raise not_found(f"{' or '.join(kinds)} {path} of job {job_id}")
    if row["size_bytes"] > MOST_BYTES:
        why = f"{path} has {row['size_bytes']} bytes, and at most {MOST_BYTES} are shown; download it by MLflow's client"
        raise ProblemError(413, "Too large", why)
    return job, row


def _reading(request: Request) -> asyncio.Semaphore:
    """So many at a time: whole contents are in memory."""
    state = request.app.state
    if not hasattr(state, "media_reading"):
        state.media_reading = asyncio.Semaphore(WHOLES)
    return cast(asyncio.Semaphore, state.media_reading)


async def _whole(job: Row, row: Row, request: Request) -> bytes:
    found = await _content(store_of(request), job, row)
    if found is None:
        raise not_found(f"file {row['path']} of job {job['job_id']}")
    return found


async def _content(objects: S3ObjectStore, job: Row, row: Row) -> bytes | None:
    pieces = await _opened(objects, job, row)
    try:
        return None if pieces is None else await asyncio.to_thread(b"".join, pieces)
    except DamagedError as error:
        raise ProblemError(422, "Damaged", str(error)) from error
    except CheckpointError as error:
        raise busy("the object store does not answer; try again in a moment") from error


async def _opened(objects: S3ObjectStore, job: Row, row: Row) -> Iterator[bytes] | None:
    try:
        return await asyncio.to_thread(run_file, objects, job["job_id"], job["project"], row)
    except DamagedError as error:
        raise ProblemError(422, "Damaged", str(error)) from error
    except CheckpointError as error:
        raise busy("the object store does not answer; try again in a moment") from error


def _histogram(content: bytes, step: int) -> dict[str, Any] | None:
    """A histogram, as far as it is one: the file is a program's."""
    try:
        known = orjson.loads(content)
        edges, counts = known["edges"], known["counts"]
        if not 0 < len(counts) <= MOST_BINS or len(edges) != len(counts) + 1:
            return None
        edges, counts = [float(edge) for edge in edges], [float(count) for count in counts]
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, OverflowError):
        return None
    if min(counts) < 0 or not all(low < high for low, high in itertools.pairwise(edges)):
        return None
    not_finite = known.get("not_finite", 0)
    return {"step": step, "edges": edges, "counts": counts, "not_finite": not_finite if isinstance(not_finite, int) else 0}


def _table(content: bytes, limit: int) -> TablePart | None:
    """The first rows of a table, as far as it is one."""
    try:
        known = orjson.loads(content)
        columns, rows = [str(name)[:CELL_CHARS] for name in known["columns"]], known["data"]
        cells = [[_cell(cell) for cell in row[:MOST_TABLE_COLUMNS]] for row in rows[:limit]]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    left_out = known.get("left_out_rows", 0)
    total = len(rows) + (left_out if isinstance(left_out, int) else 0)
    return TablePart(columns=columns[:MOST_TABLE_COLUMNS], rows=cells, total_rows=total, total_columns=len(columns))


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return (value if isinstance(value, str) else orjson.dumps(value).decode())[:CELL_CHARS]
