"""The app: routes, errors and pages put together.

Holds: one OpenAPI 3.1 document describes every route; nothing is asked of a server before the first request.
Never: opens itself to other sites: there is no CORS.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, params
from fastapi.responses import PlainTextResponse, Response

from trainhouse.events.runtime.metrics_server import exposition
from trainhouse.gateway import problems
from trainhouse.gateway.aliases import training_run_routes
from trainhouse.gateway.answers import Json
from trainhouse.gateway.artifacts import artifact_version_routes, media_routes
from trainhouse.gateway.audit.auditor import Audited
from trainhouse.gateway.auth.authentication import needs
from trainhouse.gateway.auth.roles import Role
from trainhouse.gateway.background import Following
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.datasets import drift_routes, grant_routes, version_routes
from trainhouse.gateway.document import describe
from trainhouse.gateway.fleet import alert_causes, node_figures, trends
from trainhouse.gateway.limits.rate_limits import RateHeaders
from trainhouse.gateway.limits.request_heads import Heads, Limits, names_of
from trainhouse.gateway.limits.request_limits import Bounds
from trainhouse.gateway.mlflow import router as mlflow
from trainhouse.gateway.models import model_routes, service_routes, version_parts
from trainhouse.gateway.optuna import log_routes
from trainhouse.gateway.pages import router as pages
from trainhouse.gateway.request_metrics import Figures, Measured
from trainhouse.gateway.routes import (
    audit,
    code,
    compare,
    curves,
    fleet,
    fleet_nodes,
    identity,
    job_limits,
    job_parts,
    job_timeline,
    jobs,
    lineage,
    profiles,
    project_access,
    query,
    rank_output,
    slo,
    streams,
    usage,
    writes,
)
from trainhouse.gateway.runs import column_routes, differences_routes, tag_routes
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.gateway.sharing import document_routes, run_link_routes
from trainhouse.gateway.studies import part_routes, study_routes
from trainhouse.gateway.tunnels import tunnel_routes

DESCRIPTION = "Trainhouse over HTTP: submit training jobs, follow them, ask anything in SQL. Errors are RFC 9457 problems."

ROUTES = (
    jobs,
    writes,
    job_limits,
    code,
    job_timeline,
    rank_output,
    curves,
    job_parts,
    profiles,
    streams,
    tunnel_routes,
    compare,
    differences_routes,
    tag_routes,
    column_routes,
    lineage,
    fleet_nodes,
    alert_causes,
    node_figures,
    trends,
    fleet,
    usage,
    project_access,
    version_routes,
    drift_routes,
    grant_routes,
    model_routes,
    version_parts,
    service_routes,
    study_routes,
    part_routes,
    training_run_routes,
    artifact_version_routes,
    media_routes,
    log_routes,
    document_routes,
    run_link_routes,
    slo,
    query,
    audit,
    identity,
)


def make_app(gateway: Gateway) -> FastAPI:
    """An app on these ports; it closes them when it ends."""
    app = FastAPI(
        title="Trainhouse",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if gateway.settings.openapi == "open" else None,
        lifespan=_life,
        openapi_tags=[{"name": "jobs"}, {"name": "identity"}],
    )
    app.state.gateway = gateway
    problems.register(app)
    for module in ROUTES:
        app.include_router(module.router)
    app.include_router(mlflow.router)
    app.add_middleware(RateHeaders)
    app.add_middleware(Bounds, body_bytes=gateway.settings.body_bytes, body_time_s=gateway.settings.body_time_s)
    app.add_middleware(Heads, **_heads(gateway.settings))
    app.add_middleware(Audited, auditor=gateway.audit)
    _own(app, gateway.settings, Figures(lambda: len(gateway.hub), gateway.audit.log))
    _pages(app)
    describe(app)
    return app


def _heads(settings: GatewaySettings) -> dict[str, Any]:
    """Returns the options of the checks that every request meets first."""
    names = names_of(settings.hosts, settings.host, settings.url)
    return {"names": names, "limits": Limits(settings.header_bytes, settings.header_fields), "https": settings.secure}


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    gateway: Gateway = app.state.gateway
    following = Following(gateway)
    following.start()
    try:
        yield
    finally:
        await following.close()
        await asyncio.to_thread(gateway.models.close)
        await asyncio.to_thread(gateway.studies.close)
        await gateway.reader.close()
        await asyncio.to_thread(gateway.bus.close)
        if gateway.operations is not None:
            await asyncio.to_thread(gateway.operations.close)


def _own(app: FastAPI, settings: GatewaySettings, figures: Figures) -> None:
    """Adds the routes about the process itself."""

    async def health() -> Response:
        """Answers while the process serves; what is behind it is asked for by requests themselves."""
        return PlainTextResponse("ok\n")

    async def metrics() -> Response:
        """Figures for Prometheus."""
        kind, text = exposition(figures.registry)
        return Response(text, headers={"Content-Type": kind})

    app.add_api_route("/healthz", health, include_in_schema=False)

    async def document() -> Response:
        """The OpenAPI document."""
        return Json(app.openapi())

    if settings.metrics != "off":
        app.add_api_route("/metrics", metrics, include_in_schema=False, dependencies=_asked(settings.metrics))
    if settings.openapi == "token":
        app.add_api_route("/openapi.json", document, include_in_schema=False, dependencies=_asked(settings.openapi))
    app.add_middleware(Measured, figures=figures)


def _asked(access: str) -> list[params.Depends]:
    return [Depends(needs(Role.VIEWER))] if access == "token" else []


def _pages(app: FastAPI) -> None:
    """The web pages: their addresses and their files."""
    app.mount("/static", pages.Files(directory=pages.STATIC), name="static")
    app.include_router(pages.router)
    app.include_router(identity.pages)
