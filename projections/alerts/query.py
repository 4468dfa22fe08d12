"""Asks ClickHouse's HTTP interface one question as of a moment.

Holds: values are bound by ClickHouse, never pasted; an answer is bounded in time and size. Small on purpose: the process that watches
should cost next to nothing.
Never: writes.
"""

import http.client
import urllib.parse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from trainhouse.projections.alerts.errors import EndpointUnavailableError, RuleFailedError, RuleTooExpensiveError

if TYPE_CHECKING:
    from trainhouse.projections.settings import ClickHouseSettings

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_CHARS = 500
# Too many queries at once, and a server that is about to start or to end.
_BUSY = (502, 503, 504)
# It took too long, or too much memory.
_GAVE_UP = (408, 507)

Ask = Callable[[str, Mapping[str, str]], list[dict[str, Any]]]
"""Rows of a query with its bound values. Blocks. Raises EndpointUnavailableError or RuleFailedError (RuleTooExpensiveError)."""


def asker(settings: "ClickHouseSettings", timeout_s: float) -> Ask:
    """Asks there. May be called from several threads at once."""
    where = urllib.parse.urlsplit(settings.url)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    headers = settings.headers
    fixed = {"default_format": "JSONEachRow", "output_format_json_quote_64bit_integers": "0"}
    if settings.database != "default":
        fixed["database"] = settings.database

    def ask(sql: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
        bound = fixed | {f"param_{name}": value for name, value in values.items()}
        connection = kind(where.hostname or "127.0.0.1", where.port, timeout=timeout_s)
        try:
            connection.request("POST", f"{where.path.rstrip('/')}/?{urllib.parse.urlencode(bound)}", sql.encode(), headers)
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise EndpointUnavailableError(f"ClickHouse at {settings.url} does not answer: {error!r}; is the projector up?") from error
        finally:
            connection.close()
        return _rows(response.status, body)

    return ask


def moment(at_ms: int) -> str:
    """A moment as ClickHouse reads it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def texts(values: list[str]) -> str:
    """An Array(String) as ClickHouse reads it."""
    quoted = (value.replace("\\", "\\\\").replace("'", "\\'") for value in values)
    return "[" + ",".join(f"'{value}'" for value in quoted) + "]"


def _rows(status: int, body: bytes) -> list[dict[str, Any]]:
    if status in _BUSY:
        raise EndpointUnavailableError(f"ClickHouse is busy: {body[:MAX_ERROR_CHARS].decode('utf-8', 'replace').strip()}")
    if status in _GAVE_UP:
        raise RuleTooExpensiveError(body[:MAX_ERROR_CHARS].decode("utf-8", "replace").strip())
    if status != 200:
        raise RuleFailedError(body[:MAX_ERROR_CHARS].decode("utf-8", "replace").strip())
    if len(body) > MAX_ANSWER_BYTES:
        raise RuleFailedError(f"its answer has more than {MAX_ANSWER_BYTES} bytes; a rule gives one row a case")
    return [orjson.loads(line) for line in body.splitlines() if line]
