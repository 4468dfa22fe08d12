"""Queries over ClickHouse's HTTP interface: the projector's endpoint, or any ClickHouse server.

Holds: a query blocks for `timeout_s` at most; errors are ClickHouse's own words.  Never: writes (the endpoint is read-only).
"""

import base64
import http.client
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trainhouse.client.errors import InvalidSettingsError, NotReachableError, QueryError
from trainhouse.url_accounts import without_account

MAX_ERROR_CHARS = 2000


@dataclass(frozen=True)
class Table:
    """An answer: names of its columns and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows by name of column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class SqlEndpoint:
    """HTTP endpoint of ClickHouse. `url` is http(s)://host:port."""

    url: str
    user: str = ""
    password: str = ""
    database: str = ""
    timeout_s: float = 60.0

    def table(self, query: str, values: Mapping[str, str | int] | None = None) -> Table:
        """The whole answer of one query; `values` are bound to its `{name:Type}`. Blocks. Raises QueryError, NotReachableError or
        InvalidSettingsError."""
        return table_of(self.raw(query, "JSONCompact", values))

    def raw(self, query: str, format: str = "TabSeparated", values: Mapping[str, str | int] | None = None) -> bytes:
        """The answer's bytes in a ClickHouse format, unless the query names a FORMAT itself. Blocks."""
        parameters = {"default_format": format, "output_format_json_quote_64bit_integers": "0"}
        if self.database:
            parameters["database"] = self.database
        parameters |= {f"param_{name}": str(value) for name, value in (values or {}).items()}
        status, body = self._post(f"/?{urllib.parse.urlencode(parameters)}", query.encode())
        if status != 200:
            raise QueryError(clean_error(body.decode("utf-8", "replace")))
        return body

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            where = urllib.parse.urlsplit(self.url)
            port = where.port
        except ValueError as error:
            raise InvalidSettingsError(
                f"TRAINHOUSE_CLICKHOUSE_URL is {without_account(self.url)!r}: it must be of the form http://host:port"
            ) from error
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        connection = kind(where.hostname or "127.0.0.1", port, timeout=self.timeout_s)
        try:
            connection.request("POST", where.path.rstrip("/") + path, body, dict(self._headers()))
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReachableError(
                f"ClickHouse at {without_account(self.url)} does not answer: {error}; is the projector up? See `trainhouse ps`"
            ) from error
        finally:
            connection.close()

    def _headers(self) -> Mapping[str, str]:
        if not self.user:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}


def table_of(answer: bytes) -> Table:
    """A table from ClickHouse's format JSONCompact. Raises QueryError for an answer in another one, which the query asked for."""
    try:
        found = orjson.loads(answer)
        return Table(tuple(c["name"] for c in found["meta"]), tuple(tuple(r) for r in found["data"]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise QueryError("the query names a FORMAT of its own: leave it out, or ask for the answer's bytes") from error


def clean_error(text: str) -> str:
    """ClickHouse's message without its code prefix and version suffix."""
    text = re.sub(r"\s*\(version [^)]*\)+\s*$", "", text.strip())
    text = re.sub(r"^Code: \d+\. ?(DB::Exception: )?", "", text)
    return text[:MAX_ERROR_CHARS] or "ClickHouse gave no reason"


def literal(value: str | int | float) -> str:
    """A value as a ClickHouse literal; text is escaped."""
    if isinstance(value, bool) or not isinstance(value, str):
        return repr(value)
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
