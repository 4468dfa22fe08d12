"""Logs of Optuna's storages over HTTP: appends, and reads from a line's number on.

Holds: an append that was answered is in the store, in one order for all; the same Idempotency-Key with the same lines is one append,
however often and by whichever gateway it is sent. A read sees all that was answered before it began. Finished trials are tracked runs.
A log of a project that its asker may not see does not exist for it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, TypeVar, cast

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from trainhouse.checkpointing.errors import CheckpointError, DamagedError
from trainhouse.events.model.labels import Label
from trainhouse.events.model.version_names import NAME_PATTERN
from trainhouse.gateway.auth.authentication import Submitter, Viewer
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.context import Gateway, Here, now_ms
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.optuna.journal_log import Append, JournalLog
from trainhouse.gateway.optuna.log_operations import parsed
from trainhouse.gateway.optuna.open_logs import OpenLogs
from trainhouse.gateway.problems import busy, not_found
from trainhouse.gateway.requests import keyed_event_id, refuse_read_only, reused_key
from trainhouse.gateway.routes.code import store_of

router = APIRouter(prefix="/v1/optuna", tags=["optuna"])

MOST_LINES = 1000
MOST_LINE_CHARS = 256 * 1024
MOST_APPEND_CHARS = 1024 * 1024
MOST_LOG_BYTES = 128 * 1024 * 1024
MOST_LOG_LINES = 500_000
PAGE_BYTES = 4 * 1024 * 1024
T = TypeVar("T")
Project = Annotated[Label, Path(description="The project that it belongs to.")]
Name = Annotated[str, Path(pattern=rf"^{NAME_PATTERN}$", description="The storage's name.")]
Line = Annotated[str, StringConstraints(min_length=2, max_length=MOST_LINE_CHARS)]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same lines is one append, however often it is sent.",
    ),
]
From = Annotated[int, Query(alias="from", ge=0, le=2**53, description="Number of the first line to read; the log's first one has 0.")]


class NewLines(BaseModel):
    """Operations to append together."""

    model_config = ConfigDict(extra="forbid")

    lines: Annotated[
        tuple[Line, ...], Field(min_length=1, max_length=MOST_LINES, description="operations of Optuna's journal, each as JSON")
    ]


class Appended(BaseModel):
    """Place of an append in its log."""

    first: Annotated[int, Field(description="number of its first line")]
    count: Annotated[int, Field(description="number of its lines")]


class ReadLines(BaseModel):
    """Lines of a log."""

    lines: Annotated[list[str], Field(description="operations, in the log's order")]
    next: Annotated[int, Field(description="number of the line that follows them; read on from it while it is below `head`")]
    head: Annotated[int, Field(description="number of lines that the log has")]


@router.post("/{project}/{name}/logs")
async def append(project: Project, name: Name, new: NewLines, key: Key, request: Request, here: Here, principal: Submitter) -> Appended:
    """Appends operations to a log, which begins with its first append. Repeating it with the same key is harmless."""
    _may_see(principal, project, name)
    refuse_read_only(project, principal)
    _check(new)
    logs = _logs_of(request, here)
    await _stored(here.storage.needs_room_beside(project, lambda: logs.stored_bytes(project), "of logs of Optuna's storages"))
    opened = logs.open(project, name)
    await _stored(opened.load())
    append_id = keyed_event_id(principal.sub, key, "optuna")
    made = Append(append_id, principal.sub[:256], now_ms(), new.lines)
    if append_id not in opened.state.places:
        _check_room(opened.state, name)
    place = await _stored(opened.append(made))
    if not opened.state.is_same(made):
        raise reused_key(key)
    return Appended(first=place.first, count=place.count)


@router.get("/{project}/{name}/logs")
async def read(project: Project, name: Name, request: Request, here: Here, principal: Viewer, first: From = 0) -> ReadLines:
    """Operations of a log from a number on, some MiB at a time; a log that nothing was appended to has none."""
    _may_see(principal, project, name)
    opened = _logs_of(request, here).open(project, name)
    await _stored(opened.refresh())
    head = len(opened.state.lines)
    if first > head:
        raise ProblemError(422, "Invalid request", f"from: the log of storage {name} has {head} lines, so {first} is behind its end")
    lines = opened.state.page(first, PAGE_BYTES)
    return ReadLines(lines=lines, next=first + len(lines), head=head)


def _may_see(principal: Principal, project: str, name: str) -> None:
    if not principal.sees(project):
        raise not_found(f"storage {name} of project {project}")


def _check(new: NewLines) -> None:
    """Raises ProblemError 422 for lines that are too long together, or that Optuna could not read again."""
    if (chars := sum(map(len, new.lines))) > MOST_APPEND_CHARS:
        raise ProblemError(
            422, "Invalid request", f"lines: they have {chars} characters together, and may have {MOST_APPEND_CHARS}: append fewer at once"
        )
    for number, line in enumerate(new.lines):
        try:
            parsed(line)
        except ValueError as error:
            raise ProblemError(
                422, "Invalid request", f"lines.{number}: it is no operation of Optuna's journal: {error}; nothing was appended"
            ) from error


def _check_room(log: JournalLog, name: str) -> None:
    """Raises ProblemError 422 for a log that is full. It has to be read before."""
    for found, most, of_what in ((log.size_bytes, MOST_LOG_BYTES, "bytes"), (len(log.lines), MOST_LOG_LINES, "operations")):
        if found >= most:
            raise ProblemError(
                422,
                "Limit exceeded",
                f"the log of storage {name} has {found} {of_what}, and may have {most}: go on in a storage of another name",
            )


def _logs_of(request: Request, here: Gateway) -> OpenLogs:
    """The open logs of this app."""
    state = request.app.state
    if not hasattr(state, "optuna_logs"):
        state.optuna_logs = OpenLogs(store_of(request), here.bus)
    return cast(OpenLogs, state.optuna_logs)


async def _stored(work: Awaitable[T]) -> T:
    """Work on a log. Raises ProblemError 422 where its objects are damaged, 503 where the store is away."""
    try:
        return await work
    except DamagedError as error:
        raise ProblemError(422, "Damaged", str(error)) from error
    except CheckpointError as error:
        raise busy("the object store does not answer; try again in a moment") from error
