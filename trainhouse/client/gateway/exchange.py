"""Requests to the gateway and what its answers mean, without a socket: one way to ask, blocking or not.

Holds: pure. A flow yields requests and is sent their answers; its return value is the result. Both clients run the same flows.
Never: shows a token; takes a text of the gateway for anything but text.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from trainhouse.client.errors import (
    AccessDeniedError,
    ChangeRefusedError,
    ClientError,
    InvalidSpecError,
    NoReplyError,
    NotReachableError,
    QueryError,
)
from trainhouse.url_accounts import without_account

T = TypeVar("T")
MAX_SHOWN_CHARS = 2000


@dataclass(frozen=True)
class Request:
    """One request. `body` goes as JSON, `content` as it is."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Seconds to wait before it is sent: a flow has no clock.
    pause_s: float = 0.0


@dataclass(frozen=True)
class GatewayAnswer:
    """One answer, whole."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Its document. Raises NotReachableError: a page of something between us and the gateway is no answer."""
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError as error:
            raise NotReachableError("the answer is no JSON: does TRAINHOUSE_GATEWAY_URL name a gateway of Trainhouse?") from error


Flow = Generator[Request, GatewayAnswer, T]


def ask(request: Request) -> Flow[GatewayAnswer]:
    """One request; its answer if it is a success. Raises the error that the answer tells of."""
    answer = yield request
    if answer.status >= 300:
        raise error_of(answer)
    return answer


def everything(path: str, params: Mapping[str, Any] | None = None) -> Flow[list[dict[str, Any]]]:
    """All items of a listing, page by page."""
    found: list[dict[str, Any]] = []
    query = dict(params or {})
    while True:
        page = (yield from ask(Request("GET", path, query))).json()
        found += page["items"]
        if page.get("next_cursor") is None:
            return found
        query["cursor"] = page["next_cursor"]


def away(url: str, error: Exception) -> NotReachableError:
    """One sentence for a gateway that does not answer."""
    cause = str(error) or type(error).__name__
    return NotReachableError(
        f"the gateway at {without_account(url)} does not answer ({cause}); is it up, and TRAINHOUSE_GATEWAY_URL right?"
    )


class NotFoundError(ClientError):
    """404: what it is of, the caller knows."""


def error_of(answer: GatewayAnswer) -> ClientError:
    """Returns the error that a refusal means to its reader."""
    text, about = detail(answer), document(answer)
    if isinstance(about.get("code"), int):
        return QueryError(text)  # ClickHouse's own code
    retryable = answer.status in (408, 425, 429, 500, 502, 503, 504)
    if answer.status == 404:
        return NotFoundError(text)
    if answer.status in (401, 403):
        return AccessDeniedError(f"the gateway refused: {text}")
    if answer.status == 409:
        return ChangeRefusedError(text)
    if answer.status == 504:
        return NoReplyError(text)
    if retryable:
        return NotReachableError(f"the gateway: {text}")
    return InvalidSpecError(text) if answer.status in (400, 413, 415, 422) else ClientError(f"the gateway refused: {text}")


def query_error(error: ClientError) -> ClientError:
    """An error of a question in SQL: what is wrong with it is ClickHouse's to say."""
    return QueryError(str(error)) if isinstance(error, InvalidSpecError) else error


def detail(answer: GatewayAnswer) -> str:
    """The sentence of a problem document (RFC 9457), or what stands in its place."""
    found = document(answer).get("detail")
    return found[:MAX_SHOWN_CHARS] if isinstance(found, str) else f"it answered {answer.status} without a reason"


def document(answer: GatewayAnswer) -> dict[str, Any]:
    """The answer's JSON object; empty where it is none."""
    try:
        found = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
