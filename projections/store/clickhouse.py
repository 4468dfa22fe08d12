"""Port to ClickHouse for writers: commands, Arrow inserts with a deduplication token, and small reads.

Holds: one interface over clickhouse-connect for a server (HTTP) and for the embedded engine (`chdb`); an insert carries the settings
that make a repeat with the same token insert nothing. One object serves one thread at a time.
Never: serves outsiders; that is the endpoint's work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.binding import str_query_value
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from trainhouse.projections.errors import ClickHouseRequestError
from trainhouse.projections.settings import ClickHouseSettings

# A repeat of an insert is recognised by its token, in the tables that a materialized view feeds as well.
EXACT_INSERT = {"insert_deduplicate": "1", "deduplicate_blocks_in_dependent_materialized_views": "1", "max_insert_threads": "1"}

# As text in the statement a few rows cost some ms of CPU less than as Arrow, for which the embedded engine takes a file and a pipeline of
# its own; more rows, or longer ones, cost more.
_MAX_ROWS_AS_TEXT = 32
_MAX_BYTES_AS_TEXT = 32 * 1024
_TEXT_INSERT = EXACT_INSERT | {"input_format_parallel_parsing": "0", "precise_float_parsing": "1"}


class ClickHouse(Protocol):
    """Port to ClickHouse for ingestion. Every call blocks and raises ClickHouseRequestError."""

    def command(self, sql: str) -> None:
        """Runs a statement without result (DDL and the like)."""

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a small query; `parameters` bind `{name:Type}` placeholders."""

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        """Inserts all rows; a second insert with the same token and data adds none."""

    def close(self) -> None:
        """Lets the connection go."""


class ConnectClickHouse:
    """The port over one clickhouse-connect client, of either interface."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def command(self, sql: str) -> None:
        try:
            self._client.command(sql)
        except ClickHouseError as error:
            raise _failed(sql, error) from error

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in self._client.query(sql, parameters=dict(parameters or {})).result_rows]
        except ClickHouseError as error:
            raise _failed(sql, error) from error

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        if not data.num_rows:
            return
        small = data.num_rows <= _MAX_ROWS_AS_TEXT and data.nbytes <= _MAX_BYTES_AS_TEXT
        text = insert_as_text(table, data, token) if small else None
        try:
            if text is not None:
                self._client.command(text)
            else:
                self._client.insert_arrow(table, data, settings=EXACT_INSERT | {"insert_deduplication_token": token})
        except ClickHouseError as error:
            raise _failed(f"insert of {data.num_rows} rows into {table}", error) from error

    def close(self) -> None:
        self._client.close()


def connect_server(settings: ClickHouseSettings) -> ConnectClickHouse:
    """A connection to a ClickHouse server (or to the projector's endpoint, to read). Blocks on the network."""
    return ConnectClickHouse(http_client(settings))


def http_client(settings: ClickHouseSettings) -> Client:
    """clickhouse-connect's ordinary HTTP client. Raises ClickHouseRequestError when nobody answers."""
    url = urlsplit(settings.url)
    try:
        return clickhouse_connect.get_client(
            interface=url.scheme,
            host=url.hostname or "127.0.0.1",
            port=url.port or (8443 if url.scheme == "https" else 8123),
            username=settings.user,
            password=settings.password,
            database=url.path.strip("/") or settings.database,
            send_receive_timeout=round(settings.timeout_s),
            autogenerate_session_id=False,
        )
    except ClickHouseError as error:
        raise ClickHouseRequestError(f"ClickHouse at {settings.url} does not answer: {error}; is the projector up?") from error


def embedded_options(memory_bytes: int, merge_threads: int) -> dict[str, str]:
    """Start arguments of the embedded engine that bound its memory and its background threads."""
    return {
        "max_server_memory_usage": str(memory_bytes),
        "mark_cache_size": str(memory_bytes // 16),
        "background_pool_size": str(merge_threads),
        "background_schedule_pool_size": "4",
    }


def connect_embedded(folder: Path, memory_bytes: int, merge_threads: int) -> ConnectClickHouse:
    """Opens the engine in this process, or one more connection to it. Only one process may hold a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        client = clickhouse_connect.get_client(
            interface="chdb", path=str(folder), chdb_options=embedded_options(memory_bytes, merge_threads)
        )
    except ClickHouseError as error:
        raise ClickHouseRequestError(f"the embedded engine cannot open {folder}: {error}; does another process use it?") from error
    return ConnectClickHouse(client)


def _moment(value: object) -> str:
    if isinstance(value, datetime) and 1970 <= value.year < 2100:
        return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_moment)


def insert_as_text(table: str, data: pa.Table, token: str) -> str | None:
    """Returns the statement with its rows in it, as JSON; None where a value has no exact form there.

    Those are bytes, a number that is not finite, a map with a key twice, and a moment that the engine would not read as it is. Its settings
    stand in it too: the embedded engine would set and restore each by itself.
    """
    settings = _TEXT_INSERT | {"insert_deduplication_token": token}
    named = ", ".join(f"{name} = {str_query_value(value)}" for name, value in settings.items())
    try:
        rows = "\n".join(map(_JSON.encode, data.to_pylist(maps_as_pydicts="strict")))
    except (ValueError, TypeError, OverflowError, KeyError):
        return None
    return f"INSERT INTO {table} ({', '.join(data.column_names)}) SETTINGS {named} FORMAT JSONEachRow {rows}"


def _failed(what: str, error: Exception) -> ClickHouseRequestError:
    shown = what if len(what) <= 200 else what[:200] + " …"
    return ClickHouseRequestError(f"ClickHouse failed on: {shown}\n{error}", getattr(error, "code", 0) or 0)
