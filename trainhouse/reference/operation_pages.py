"""The page of the HTTP API: each operation of the gateway's OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI

from trainhouse.gateway.app import DESCRIPTION, ROUTES
from trainhouse.gateway.document import describe
from trainhouse.gateway.mlflow import router as mlflow
from trainhouse.reference.markdown import code, prose, table
from trainhouse.reference.model_pages import definitions, type_of

INTRODUCTION = """# HTTP API

{description} The OpenAPI 3.1 document of a running gateway is at `/openapi.json`. Every request but those of the pages carries
`Authorization: Bearer TOKEN`; every error is `application/problem+json` with `type`, `title`, `status` and `detail`.
"""


def http_api() -> str:
    """Every operation with its parameters, body and answer."""
    found = document()
    sections = [
        _operation(method, path, operation) for path, methods in sorted(found["paths"].items()) for method, operation in methods.items()
    ]
    parts = found["components"]["schemas"]
    return "\n".join(
        [INTRODUCTION.format(description=DESCRIPTION), "## Operations\n", *sections, "## Bodies and answers\n", *definitions(parts, "###")]
    )


def document() -> dict[str, Any]:
    """The OpenAPI document of the gateway's routes, without a gateway."""
    app = FastAPI(title="Trainhouse", version="1", description=DESCRIPTION)
    for module in ROUTES:
        app.include_router(module.router)
    app.include_router(mlflow.router)
    describe(app)
    return app.openapi()


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}\n", prose(operation.get("description") or operation.get("summary")) + "\n"]
    if rows := [_parameter(p) for p in operation.get("parameters", ())]:
        lines.append(table(["parameter", "in", "type", "default", "meaning"], rows))
    if body := [type_of(s) for s in _schemas(operation.get("requestBody", {}))]:
        lines.append(f"Body: {', '.join(body)}.\n")
    answers = [f"{status}: {', '.join(types)}" for status, types in _answers(operation) if types]
    if answers:
        lines.append(f"Answer: {'; '.join(answers)}.\n")
    return "\n".join(lines)


def _parameter(parameter: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    schema = parameter.get("schema", {})
    default = "required" if parameter.get("required") else code(schema.get("default"))
    return code(parameter["name"]), parameter["in"], type_of(schema), default, prose(parameter.get("description"))


def _answers(operation: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for status, answer in operation["responses"].items():
        if status != "default":
            yield status, [type_of(schema) for schema in _schemas(answer)]


def _schemas(holder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [content["schema"] for content in holder.get("content", {}).values() if content.get("schema")]
