"""Serves the pages: every address of a page answers with the one HTML file, whose script shows what the address names.

Holds: the browser itself is told to load and send nothing beyond this host, to run no inline script, and to be framed by nobody.
Never: reads a token; what a page shows it asks of the API like everybody else.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
INDEX = Path(__file__).parent / "index.html"
PATHS = (
    "/",
    "/jobs",
    "/jobs/{job_id}",
    "/compare",
    "/nodes",
    "/nodes/{node_id}",
    "/datasets",
    "/datasets/{name}",
    "/models",
    "/models/{name}",
    "/studies",
    "/studies/{name}",
    "/utilization",
    "/sql",
    "/reports",
    "/reports/{project}/{name}",
    "/shared",
)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class Files(StaticFiles):
    """The pages' files. A browser keeps them and asks each time whether they are still good, so that an update never mixes two versions."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


router = APIRouter(include_in_schema=False)


async def page() -> Response:
    """The HTML file of all pages."""
    return FileResponse(INDEX, media_type="text/html", headers=HEADERS)


for path in PATHS:
    router.add_api_route(path, page, methods=["GET"])
