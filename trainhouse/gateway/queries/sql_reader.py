"""Questions to the projections over ClickHouse's HTTP interface, without blocking the event loop.

Holds: every value is bound (`{name:Type}` and `param_name`), never pasted; times come back as RFC 3339 in UTC; a question has a
time limit; connections are bounded.
Never: writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from clickhouse_connect.driver.binding import format_bind_value

from trainhouse.gateway.errors import SqlRefusedError, SqlUnavailableError
from trainhouse.projections.endpoint.allowed import CATALOGUE, known
from trainhouse.projections.endpoint.gate import Gate, Passed, parsing, spelling
from trainhouse.projections.endpoint.gate_cache import Verdicts
from trainhouse.projections.endpoint.request import GUEST_HEADER
from trainhouse.projections.settings import ClickHouseSettings

Row = dict[str, Any]
Sent = dict[str, Any]
CONNECTIONS = 32
RESULT_TOO_LARGE = 396
MAX_TREE_BYTES = 16 * 1024 * 1024
_SETTINGS = {"default_format": "JSONCompact", "output_format_json_quote_64bit_integers": "0"}


@dataclass(frozen=True)
class SqlAnswer:
    """An answer in a form of ClickHouse: its media type and its bytes."""

    kind: str
    content: bytes


class SqlReader:
    """The projections. One for the whole process; `close` lets the connections go."""

    def __init__(self, settings: ClickHouseSettings, *, timeout_s: float = 30.0) -> None:
        self._guest = settings.guest_headers | {GUEST_HEADER: "1"}
        self._database = settings.database
        self._gate: Gate | None = None
        self._verdicts = Verdicts()
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers=settings.headers,
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
        )

    async def close(self) -> None:
        """Lets the connections go."""
        await self._client.aclose()

    async def rows(self, sql: str, values: Mapping[str, object] | None = None) -> list[Row]:
        """The whole answer as dicts by column. Raises SqlUnavailableError, or SqlRefusedError."""
        answer = whole(await self.raw(sql, values))
        names = [column["name"] for column in answer["meta"]]
        convert = [_converter(column["type"]) for column in answer["meta"]]
        return [{n: c(v) if c else v for n, c, v in zip(names, convert, row, strict=True)} for row in answer["data"]]

    async def one(self, sql: str, values: Mapping[str, object] | None = None) -> Row | None:
        """The first row, None where there is none."""
        found = await self.rows(sql, values)
        return found[0] if found else None

    async def passed(self, sql: str, values: Mapping[str, object]) -> Passed:
        """Returns a foreign statement as it may run: the engine spells and parses it, the gate judges. Raises QueryRefusedError,
        SqlRefusedError."""
        kept = self._verdicts.get(sql, self._database)
        if kept is not None:
            return kept
        gate = await self._own_gate()
        passed = gate.spelled(await self._plain(spelling(sql), {}), self._database)
        gate.parsed(passed, await self._plain(parsing(passed), values))
        self._verdicts.keep(sql, self._database, passed)
        return passed

    async def _plain(self, question: str, values: Mapping[str, object]) -> str:
        settings = self._where() | {"default_format": "TSVRaw"}
        return (await self.ask(question, values, settings, MAX_TREE_BYTES)).content.decode("utf-8", "replace")

    async def _own_gate(self) -> Gate:
        # The engine is asked once what it knows.
        if self._gate is None:
            self._gate = Gate(known(await self._plain(CATALOGUE, {})))
        return self._gate

    async def ask(self, sql: str, values: Mapping[str, object], settings: Mapping[str, str], most_bytes: int) -> SqlAnswer:
        """Runs a foreign query as a guest, under `settings`. Raises SqlRefusedError, also for an answer of more than `most_bytes`."""
        async with self._stream(sent(sql, values), self._where() | dict(settings)) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > most_bytes:
                    raise SqlRefusedError(f"the answer has more than {most_bytes} bytes; ask for less, or with LIMIT", RESULT_TOO_LARGE)
            if response.status_code != 200:
                code = response.headers.get("X-ClickHouse-Exception-Code")
                raise refusal(content.decode("utf-8", "replace"), code, response.status_code)
            return SqlAnswer(response.headers.get("Content-Type", "text/plain"), bytes(content))

    @asynccontextmanager
    async def _stream(self, asked: Sent, settings: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        try:
            async with self._client.stream("POST", "/", params=dict(settings), headers=self._guest, **asked) as response:
                yield response
        except httpx.HTTPError as error:
            raise SqlUnavailableError(
                f"the projections do not answer: {type(error).__name__}; `trainhouse ps` shows the projector"
            ) from error

    async def raw(self, sql: str, values: Mapping[str, object] | None = None, **settings: str) -> bytes:
        """The answer's bytes, in JSONCompact unless `settings` has another default_format."""
        response = await self._post(sent(sql, values or {}), _SETTINGS | self._where() | settings)
        if response.status_code != 200:
            raise refusal(response.text, response.headers.get("X-ClickHouse-Exception-Code"), response.status_code)
        return response.content

    def _where(self) -> dict[str, str]:
        return {} if self._database == "default" else {"database": self._database}

    async def _post(self, asked: Sent, settings: Mapping[str, str]) -> httpx.Response:
        try:
            return await self._client.post("/", params=dict(settings), **asked)
        except httpx.HTTPError as error:
            raise SqlUnavailableError(
                f"the projections do not answer: {type(error).__name__}; `trainhouse ps` shows the projector"
            ) from error


def sent(sql: str, values: Mapping[str, object]) -> Sent:
    """Returns body and parameters: the query alone as the body; with values a form, since a URL has no room for thousands of names.

    A server's http_max_field_value_size (128 KiB unless set) bounds each of a form's fields.
    """
    if not values:
        return {"content": sql.encode()}
    bound = {f"param_{name}": format_bind_value(list(v) if isinstance(v, tuple) else v) for name, v in values.items()}
    return {"files": {name: (None, text.encode()) for name, text in ({"query": sql} | bound).items()}}


def whole(content: bytes) -> Any:
    """An answer in JSON. Raises SqlUnavailableError for one that broke off: what goes wrong late, a server writes into the answer
    itself."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise SqlUnavailableError("the projections broke off in the middle of an answer; try again in a moment") from error


def refusal(text: str, code: str | None, status: int) -> SqlRefusedError | SqlUnavailableError:
    """ClickHouse's error as ours: a crowd or a broken server is retryable, the rest is the query's fault."""
    if status == 503 or code is None:
        return SqlUnavailableError("the projections are busy or starting; try again in a moment")
    return SqlRefusedError(text.strip()[:2000], int(code) if code.isdigit() else 0)


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.replace(" ", "T") + "Z"


def _converter(kind: str) -> Any:
    """Returns the conversion of a type that ClickHouse's JSON lacks: a time is text without a zone there."""
    return _time if "DateTime" in kind and not kind.startswith(("Array", "Map", "Tuple")) else None
