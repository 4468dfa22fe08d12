"""Profiler's traces of a job's ranks: the list of them, and their bytes.

Holds: only what lies among the job's own artifacts is read. What is downloaded is never shown as a page of this server.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import StreamingResponse

from trainhouse.events.model.tracking import TRACE_PATH, artifact_key, trace_file, trace_path
from trainhouse.gateway.answers import Json, stored_bytes
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.routes.code import asked, store_of
from trainhouse.gateway.routes.jobs import JobPath, visible_job

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"])

RequestId = Annotated[str, Path(pattern=r"^[0-9a-zA-Z_-]{1,128}$", description="Id of the profile, as `trainhouse profile` prints it.")]
Rank = Annotated[int, Path(ge=0, le=2**32 - 1)]
_PROFILES = f"""
SELECT extractGroups(path, '{TRACE_PATH}') AS parts, parts[1] AS profile, toUInt32OrZero(parts[2]) AS rank, path, at, size_bytes, sha256
FROM artifacts WHERE job_id = {{job_id:String}} AND match(path, '{TRACE_PATH}') ORDER BY at DESC, profile, rank LIMIT 1000
"""
_ONE = "SELECT uri, sha256 FROM artifacts WHERE job_id = {job_id:String} AND path = {path:String} LIMIT 1"
OCTETS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/gzip": {}}, "description": "A trace in Chrome's format, compressed by gzip."}
}


@router.get("/{job_id}/profiles")
async def profiles(job_id: JobPath, here: Here, principal: Viewer) -> Json:
    """Traces that `trainhouse profile` recorded, the newest first."""
    await visible_job(here, principal, job_id)
    rows = await here.reader.rows(_PROFILES, {"job_id": job_id})
    return Json({"items": [{name: value for name, value in row.items() if name != "parts"} for row in rows], "next_cursor": None})


@router.get("/{job_id}/profiles/{profile}/{rank}", response_class=StreamingResponse, responses=OCTETS)
async def profile(job_id: JobPath, profile: RequestId, rank: Rank, request: Request, here: Here, principal: Viewer) -> StreamingResponse:
    """The trace of one rank, for https://ui.perfetto.dev or chrome://tracing."""
    await visible_job(here, principal, job_id)
    row = await here.reader.one(_ONE, {"job_id": job_id, "path": trace_path(profile, rank)})
    objects, key = store_of(request), artifact_key(job_id, row["sha256"] if row else "")
    stat = await asked(objects.stat, key) if row is not None and row["uri"] == objects.uri(key) else None
    if stat is None:
        raise not_found(f"profile {profile} of rank {rank} of job {job_id}")
    name = f"{job_id}-{profile}-{trace_file(rank)}"
    headers = {"Content-Length": str(stat.size_bytes), "Content-Disposition": f'attachment; filename="{name}"'}
    headers |= {"X-Content-Type-Options": "nosniff"}
    return StreamingResponse(stored_bytes(objects, key, stat.size_bytes), headers=headers, media_type="application/gzip")
