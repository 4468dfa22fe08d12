"""Raw SQL, read-only, for callers that see all projects.

Holds: a statement that writes, or reaches outside the tables, is refused before it runs; what runs has limits of time, rows, bytes and
memory, and connections that no other question uses. A statement cannot lift its limits.
Never: rewrites a statement: rows of other projects cannot be taken out of any SQL, so a token of some projects has none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import ProblemError, SqlRefusedError
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.endpoint.gate import Passed
from trainhouse.projections.endpoint.row_counts import rows_of
from trainhouse.projections.errors import QueryRefusedError

router = APIRouter(prefix="/v1", tags=["sql"])

MAX_SQL_CHARS = 256 * 1024
AUDIT_TABLES = frozenset({"audit", "audit_rows"})
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Value = Annotated[str, StringConstraints(max_length=MAX_SQL_CHARS)]

_FORBIDDEN = frozenset({164, 497})
_OVER = {159: "time", 160: "time", 158: "rows", 396: "rows or bytes", 307: "bytes", 241: "memory"}


class Format(StrEnum):
    """Forms of an answer."""

    JSON = "JSON"
    JSON_COMPACT = "JSONCompact"
    JSON_EACH_ROW = "JSONEachRow"
    JSON_COMPACT_ROWS = "JSONCompactEachRowWithNamesAndTypes"
    CSV = "CSV"
    CSV_WITH_NAMES = "CSVWithNames"
    TSV = "TabSeparated"
    TSV_WITH_NAMES = "TabSeparatedWithNames"
    PRETTY = "PrettyCompact"
    VERTICAL = "Vertical"
    ARROW = "ArrowStream"
    PARQUET = "Parquet"


class Question(BaseModel):
    """One statement; `parameters` are bound to its `{name:Type}`."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1, max_length=MAX_SQL_CHARS)]
    format: Format = Format.JSON_COMPACT
    parameters: Annotated[dict[Name, Value], Field(max_length=256)] = {}


@router.post(
    "/query", response_class=Response, responses={200: {"content": {"application/json": {}}, "description": "In the form asked for."}}
)
async def query(body: Question, here: Here, principal: Viewer, request: Request) -> Response:
    """Asks in SQL. Needs a token of all projects (`projects: ["*"]`)."""
    if not principal.everywhere:
        raise ProblemError(
            403,
            "Forbidden",
            "raw SQL reads the tables of all projects, so it needs a token of all of them (projects: *); "
            f"yours is for {', '.join(principal.projects)}. The other routes answer about these",
        )
    settings = limits_of(here.settings) | {"default_format": body.format.value}
    try:
        passed = await here.reader.passed(body.query, body.parameters)
        refuse_audit(passed, principal)
        settings |= {"default_format": passed.format} if passed.format else {}
        answer = await here.reader.ask(passed.body, body.parameters, settings, here.settings.query_bytes)
    except QueryRefusedError as refused:
        raise problem_of(SqlRefusedError(str(refused), refused.code)) from refused
    except SqlRefusedError as refused:
        raise problem_of(refused) from refused
    request.state.rows = rows_of(settings["default_format"], answer.content)
    return Response(answer.content, headers={"Content-Type": answer.kind})


def refuse_audit(passed: Passed, principal: Principal) -> None:
    """Restricts the audit tables to admins, as at /v1/audit. Raises ProblemError 403."""
    if not principal.may(Role.ADMIN) and any(word.text.strip('`"').lower() in AUDIT_TABLES for word in passed.words):
        raise ProblemError(403, "Forbidden", "the audit tells what everybody asked, so it needs the role admin; your token has less")


def limits_of(settings: GatewaySettings) -> dict[str, str]:
    """As settings of a ClickHouse server. The embedded engine is sealed with those that the projector has for guests."""
    return {
        "readonly": "1",
        "max_execution_time": f"{settings.query_time_s:g}",
        "max_result_rows": str(settings.query_rows),
        "max_result_bytes": str(settings.query_bytes),
        "result_overflow_mode": "throw",
        "max_memory_usage": str(settings.query_memory_bytes),
    }


def problem_of(refused: SqlRefusedError) -> ProblemError:
    """ClickHouse's refusal as an answer."""
    if refused.code in _FORBIDDEN:
        return ProblemError(403, "Forbidden", str(refused), code=refused.code)
    if refused.code in _OVER:
        return ProblemError(422, "Limit exceeded", f"the query went over its limit of {_OVER[refused.code]}: {refused}", code=refused.code)
    return ProblemError(400, "Query refused", str(refused), code=refused.code)
