"""Profiler's traces of a job's ranks: a request for them, its progress, the list of them, and their bytes.

Holds: only what lies among the job's own artifacts is read. What is downloaded is never shown as a page of this server. The agents of the
job's nodes judge a request by its signature and its asker's role once more.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from trainhouse.events import JobId, NodeId, ProfileRanks
from trainhouse.events.model.operations import MAX_PROFILED_RANKS, MAX_PROFILED_STEPS
from trainhouse.events.model.tracking import TRACE_PATH, artifact_key, trace_file, trace_path
from trainhouse.events.wire.topics import OPERATIONS
from trainhouse.gateway import requests
from trainhouse.gateway.answers import Json, stored_bytes
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.context import Gateway, Here, address_of, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.problems import not_found
from trainhouse.gateway.requests import Key
from trainhouse.gateway.routes.code import asked, store_of
from trainhouse.gateway.routes.jobs import JobPath, visible_job
from trainhouse.gateway.routes.writes import Body

router = APIRouter(prefix="/v1/training-jobs", tags=["jobs"])

RequestId = Annotated[str, Path(pattern=r"^[0-9a-zA-Z_-]{1,128}$", description="Id of the profile, as `trainhouse profile` prints it.")]
Rank = Annotated[int, Path(ge=0, le=2**32 - 1)]
_PROFILES = f"""
SELECT extractGroups(path, '{TRACE_PATH}') AS parts, parts[1] AS profile, toUInt32OrZero(parts[2]) AS rank, path, at, size_bytes, sha256
FROM artifacts WHERE job_id = {{job_id:String}} AND match(path, '{TRACE_PATH}') ORDER BY at DESC, profile, rank LIMIT 1000
"""
_PLACES = "SELECT rank, node_id FROM ranks WHERE job_id = {job_id:String} AND epoch = {epoch:UInt32} AND node_id != ''"
_STORED = f"""
SELECT toUInt32OrZero(extractGroups(path, '{TRACE_PATH}')[2]) AS rank, path, size_bytes
FROM artifacts WHERE job_id = {{job_id:String}} AND startsWith(path, {{folder:String}}) AND match(path, '{TRACE_PATH}')
"""
_OBEYED = """
SELECT kind, ranks, reason FROM audit
WHERE job_id = {job_id:String} AND access_id = {request:String} AND action = 'ProfileRanks' ORDER BY at, kind DESC
"""
_ONE = "SELECT uri, sha256 FROM artifacts WHERE job_id = {job_id:String} AND path = {path:String} LIMIT 1"
OCTETS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/gzip": {}}, "description": "A trace in Chrome's format, compressed by gzip."}
}


class Recording(Body):
    """A profile to record."""

    ranks: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=MAX_PROFILED_RANKS)] = Field(
        [0], description="ranks that record"
    )
    steps: Annotated[int, Field(ge=1, le=MAX_PROFILED_STEPS, description="steps to record")] = 20
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="seconds after which recording ends with the steps so far")] = 300.0


class RecordingAsked(BaseModel):
    """A request to agents that Kafka holds. GET …/profiles/PROFILE to see what became of it."""

    job_id: str
    profile: str = Field(description="id of the request, by which its traces are found")
    ranks: list[int] = Field(description="ranks that were asked")


class RankRecording(BaseModel):
    """Progress of one rank: `asked`, `recording` (its agent obeys), `stored`, `failed` or `refused`, with the reason."""

    rank: int
    state: str
    reason: str = ""
    path: str | None = Field(None, description="of the trace, among the job's artifacts; null until it is stored")
    size_bytes: int | None = None


class ProfileProgress(BaseModel):
    """Progress of a profile: a rank that no agent has answered for yet is not in it."""

    job_id: str
    profile: str = Field(description="id of the request")
    ranks: list[RankRecording] = Field(description="ranks that an agent has answered for, in order")


@router.post("/{job_id}/profiles", status_code=202)
async def record(
    job_id: JobPath, here: Here, principal: Submitter, request: Request, body: Recording | None = None, key: Key = None
) -> RecordingAsked:
    """Asks the agents of a running job to have ranks record their next steps by torch's profiler. Training goes on."""
    job = await visible_job(here, principal, job_id)
    requests.refuse_read_only(job["project"], principal)
    asked_for = body or Recording()
    ranks = list(dict.fromkeys(asked_for.ranks))
    places = await _places(here, job, ranks)
    profile = secrets.token_hex(8) if key is None else requests.keyed_event_id(principal.sub, key, "profile", job_id)
    bus, asked_at_ms = here.operations or here.bus, now_ms()
    for number, node in enumerate(dict.fromkeys(places[rank] for rank in ranks)):
        event = ProfileRanks(
            request_id=profile,
            node_id=NodeId(node),
            job_id=JobId.parse(job_id),
            expires_at_ms=asked_at_ms + round(asked_for.timeout_s * 1000),
            requested_by=requests.requested_by(principal),
            host=address_of(request),
            ranks=tuple(rank for rank in ranks if places[rank] == node),
            steps=asked_for.steps,
            timeout_s=asked_for.timeout_s,
        )
        sent = await bus.send(OPERATIONS, event, f"{profile}:{number}", key=node)
        here.accepted(request, principal, sent, target=job_id, project=job["project"])
    return RecordingAsked(job_id=job_id, profile=profile, ranks=ranks)


async def _places(here: Gateway, job: dict[str, Any], ranks: list[int]) -> dict[int, str]:
    """Nodes of ranks that run now. Raises ProblemError."""
    job_id, world_size = job["job_id"], job["world_size"]
    if job["state"] != "RUNNING":
        raise ProblemError(409, "Nothing to record", f"job {job_id} runs on no node now: it is {job['state']}")
    if job["step"] is None:
        raise ProblemError(409, "Nothing to record", f"job {job_id} has reported no step yet: wait for the first one")
    absent = [rank for rank in ranks if rank >= world_size]
    if absent:
        raise ProblemError(422, "Invalid request", f"ranks: job {job_id} has ranks 0 to {world_size - 1}, not {absent[0]}")
    rows = await here.reader.rows(_PLACES, {"job_id": job_id, "epoch": job["epoch"]})
    found = {int(row["rank"]): str(row["node_id"]) for row in rows}
    unknown = [rank for rank in ranks if rank not in found]
    if unknown:
        raise ProblemError(409, "Nothing to record", f"job {job_id}: where rank {unknown[0]} runs is not known yet; ask again in a moment")
    return found


@router.get("/{job_id}/profiles/{profile}")
async def progress(job_id: JobPath, profile: RequestId, here: Here, principal: Viewer) -> ProfileProgress:
    """Progress of a profile that was asked for, by rank."""
    await visible_job(here, principal, job_id)
    ranks: dict[int, RankRecording] = {}
    for row in await here.reader.rows(_OBEYED, {"job_id": job_id, "request": profile[:64]}):
        for rank in row["ranks"]:
            known, why = ranks.get(rank), row["reason"]
            if row["kind"] == "refused":
                # An agent refuses the repeat of a request that it obeys, which goes on.
                ranks.setdefault(rank, RankRecording(rank=rank, state="refused", reason=why))
            elif row["kind"] != "granted":
                ranks[rank] = RankRecording(rank=rank, state="failed" if why else "recording", reason=why)
            elif known is None or known.state == "refused":
                ranks[rank] = RankRecording(rank=rank, state="recording")
    for row in await here.reader.rows(_STORED, {"job_id": job_id, "folder": f"profiles/{profile}/"}):
        rank = int(row["rank"])
        ranks[rank] = RankRecording(rank=rank, state="stored", path=row["path"], size_bytes=row["size_bytes"])
    return ProfileProgress(job_id=job_id, profile=profile, ranks=[ranks[rank] for rank in sorted(ranks)])


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
