"""The OpenAPI document: what the framework says of the routes, with every error as the problem that it is.

Holds: each operation names its errors as `application/problem+json`; what asks for no token says so.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from trainhouse.gateway.document_words import fill

PROBLEM = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
    },
}
ANSWER = {"description": "A problem.", "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_UNUSED = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> None:
    """Makes the app give this document at /openapi.json."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = with_problems(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags)
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with problems for errors."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in _UNUSED:
        schemas.pop(name, None)
    schemas["Problem"] = deepcopy(PROBLEM)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = ANSWER
    fill(document)
    return document
