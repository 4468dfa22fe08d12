"""Training runs and studies under the paths of other training services.

Holds: each route is another one's handler: what `/v1/training-jobs` and `/v1/hpo/studies` refuse, these refuse, with the same words.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from trainhouse.gateway.aliases.few_words import TrainingRun
from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.context import Here
from trainhouse.gateway.queries.read_your_writes import After
from trainhouse.gateway.requests import Key
from trainhouse.gateway.routes import jobs, streams, writes
from trainhouse.gateway.routes.streams import DECLARED, EventKind, EventStream, LastId
from trainhouse.gateway.studies import study_routes

router = APIRouter(tags=["training runs"], dependencies=[After])

RunPath = Annotated[str, Path(description="The run's id: that of its job.", max_length=128)]
BEGINNING = "s-1.m-1.l-1.e0"
"""Last-Event-ID of a reader that has nothing yet."""


class Begun(BaseModel):
    """A run that Kafka holds. `GET /training-runs/{run_id}?after=` waits until it can be read."""

    run_id: Annotated[str, Field(description="id of the run: that of its job")]
    after: str


@router.post("/training-runs", status_code=202)
async def begin(body: TrainingRun, here: Here, principal: Submitter, request: Request, response: Response, key: Key = None) -> Begun:
    """Submits a training run."""
    submitted = await writes.submit(writes.Submission(spec=body.spec), here, principal, request, response, key)
    return _begun(submitted, response)


@router.get("/training-runs/{run_id}", response_model=jobs.JobDocument)
async def run(run_id: RunPath, here: Here, principal: Viewer) -> Json:
    """A run: its state, the newest value of each metric, and its newest checkpoints."""
    return await jobs.job(run_id, here, principal)


@router.get("/training-runs/{run_id}/metrics", response_class=EventStream, responses=DECLARED)
async def metrics(run_id: RunPath, here: Here, principal: Viewer, last_id: LastId = None) -> EventStream:
    """Metrics of a run, live, as server-sent events: `metrics` from its beginning on, and `status` as it changes.

    It goes on while the client reads; after a break, behind the Last-Event-ID.
    """
    return await streams.job_stream(run_id, here, principal, [EventKind.METRICS, EventKind.STATUS], last_id or BEGINNING)


@router.post("/training-runs/{run_id}/checkpoints/{epoch}/restore", status_code=202)
async def restore(
    run_id: RunPath,
    epoch: Annotated[int, Path(ge=0, le=2**63 - 1, description="Step of the checkpoint: of a program that counts in epochs, its epoch.")],
    here: Here,
    principal: Submitter,
    request: Request,
    response: Response,
    key: Key = None,
) -> Begun:
    """Submits a new run with the same spec that begins from this checkpoint."""
    return _begun(await writes.restore(run_id, epoch, here, principal, request, response, key), response)


@router.post("/hpo/studies", status_code=201)
async def study(body: study_routes.NewStudy, here: Here, principal: Submitter, request: Request, key: Key = None) -> Json:
    """Begins a study, as `POST /v1/hpo/studies` does."""
    return await study_routes.create(body, here, principal, request, key)


def _begun(submitted: writes.Submitted, response: Response) -> Begun:
    response.headers["Location"] = f"/training-runs/{submitted.job_id}"
    return Begun(run_id=submitted.job_id, after=submitted.after)
