"""HTTP server: `/ping` for all, queries for account holders, as clickhouse-connect, Grafana and curl speak to ClickHouse.

Holds: the audit is told of every question, answered or refused. Queries run in a bounded number of threads, a bounded number of requests
wait, the rest get 503 at once; an error carries ClickHouse's code in `X-ClickHouse-Exception-Code`.
Never: listens beyond its host, and never writes.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

import orjson
import structlog
from aiohttp import web

from trainhouse.events.model.audit_texts import whole_characters
from trainhouse.projections.endpoint.door import AUTHENTICATION_FAILED, Account, Door
from trainhouse.projections.endpoint.engine import TOO_MANY_QUERIES, QueryResult
from trainhouse.projections.endpoint.request import GUEST_HEADER, MAX_QUERY_BYTES, Query, pack, read_query
from trainhouse.projections.endpoint.row_counts import rows_of
from trainhouse.projections.endpoint.sql_audit import Ended, Nowhere, SqlAudit
from trainhouse.projections.errors import ProjectionError, QueryRefusedError
from trainhouse.projections.process_metrics import QueryMeters

log = structlog.get_logger(__name__)

_STATUS = {
    164: 403,
    497: 403,
    60: 404,
    81: 404,
    47: 404,
    46: 404,
    62: 400,
    36: 400,
    202: 503,
    159: 408,
    241: 507,
    73: 400,
    195: 403,
}
_TEXT = "text/plain; charset=UTF-8"
_TYPES = {
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "TabSeparatedWithNames": "text/tab-separated-values; charset=UTF-8",
    "Parquet": "application/vnd.apache.parquet",
    "Native": "application/octet-stream",
    "ArrowStream": "application/vnd.apache.arrow.stream",
    "Arrow": "application/vnd.apache.arrow.file",
}
START_TIMEOUT_S = 30.0


class Pool(Protocol):
    """Runs queries, in this process or in another."""

    def query(self, sql: str, default_format: str, parameters: Mapping[str, str], database: str = "") -> QueryResult:
        """Runs one read. Blocks. Raises QueryRefusedError."""


class Admission:
    """Connections that serve some of the requests: so many at once, so many that wait."""

    def __init__(self, pool: Pool, threads: int, waiting: int) -> None:
        self.pool = pool
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="query")
        self.capacity = threads + waiting
        self.admitted = 0


class Endpoint:
    """The server in a thread of its own. `with Endpoint(...) as e:` serves until it leaves; `e.port` is the real port.

    Without a desk for `guests` they are served as everybody is.
    """

    def __init__(
        self,
        own: Admission,
        host: str,
        port: int,
        healthy: threading.Event,
        door: Door,
        meters: QueryMeters | None = None,
        guests: Admission | None = None,
        audit: SqlAudit | None = None,
    ) -> None:
        self._audit = audit or SqlAudit(Nowhere())
        self._door = door
        self._own = own
        self._guests = guests or own
        self._host = host
        self.port = port
        self._healthy = healthy
        self._meters = meters or QueryMeters()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="endpoint", daemon=True)

    def __enter__(self) -> Endpoint:
        self._thread.start()
        self._ready.wait(START_TIMEOUT_S)
        if self._failed is not None:
            raise ProjectionError(
                f"the SQL endpoint cannot listen on {self._host}:{self.port}: {self._failed}; set TRAINHOUSE_PROJECTOR_HTTP_PORT"
            ) from self._failed
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        for desk in (self._own, self._guests):
            desk.threads.shutdown(wait=False, cancel_futures=True)

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._failed = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2 * MAX_QUERY_BYTES)
        app.router.add_get("/ping", self._ping)
        app.router.add_route("*", "/", self._handle)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port)
            await site.start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            turning = asyncio.create_task(self._turn_audit())
            await self._stop.wait()
            turning.cancel()
        finally:
            self._audit.close()
            await runner.cleanup()

    async def _turn_audit(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            try:
                self._audit.turn()
            except Exception:
                log.exception("what was counted for the audit could not be told; it goes on")

    async def _ping(self, _request: web.Request) -> web.Response:
        if self._healthy.is_set():
            return web.Response(text="Ok.\n")
        return web.Response(status=503, text="Tables are not ready.\n")

    async def _handle(self, request: web.Request) -> web.Response:
        query_id = request.query.get("query_id") or str(uuid.uuid4())
        if request.method not in ("GET", "POST", "HEAD"):
            return _error(QueryRefusedError(f"method {request.method} is not offered; use GET or POST", 164), query_id)
        if request.method != "POST" and not request.query.get("query"):
            return web.Response(text="Ok.\n")
        try:
            account = self._door.enter(request.headers, request.query)
        except QueryRefusedError as stranger:
            self._meters.seconds.labels("refused").observe(0)
            return self._turned_away(request, "", stranger, query_id)
        desk = self._desk(account, request)
        if desk.admitted >= desk.capacity:
            refused = QueryRefusedError(f"{desk.admitted} queries run or wait already; try again later", TOO_MANY_QUERIES)
            self._meters.seconds.labels("busy").observe(0)
            return self._turned_away(request, account.user, refused, query_id)
        desk.admitted += 1
        self._meters.running.set(self._running())
        began_s, outcome, asked = time.monotonic(), "failed", None
        ended = Ended(500, reason="it was broken off")
        try:
            query = await _read(request)
            asked = self._audit.began(account, request.remote or "", query)
            loop = asyncio.get_running_loop()
            response, rows = await loop.run_in_executor(desk.threads, _answer, desk.pool, query, query_id)
            outcome, ended = "answered", Ended(response.status, rows, len(response.body or b""))  # type: ignore[arg-type]
            return response
        except QueryRefusedError as refused:
            outcome, answer = "refused", _error(refused, query_id)
            if asked is None:
                return self._turned_away(request, account.user, refused, query_id)
            ended = Ended(answer.status, size_bytes=len(answer.body or b""), reason=str(refused))  # type: ignore[arg-type]
            return answer
        finally:
            if asked is not None:
                self._audit.ended(asked, ended, time.monotonic() - began_s)
            desk.admitted -= 1
            self._meters.running.set(self._running())
            self._meters.seconds.labels(outcome).observe(time.monotonic() - began_s)

    def _turned_away(self, request: web.Request, user: str, refused: QueryRefusedError, query_id: str) -> web.Response:
        answer = _error(refused, query_id)
        self._audit.refused(answer.status, user, request.remote or "", str(refused))
        return answer

    def _desk(self, account: Account, request: web.Request) -> Admission:
        return self._guests if account.guest or request.headers.get(GUEST_HEADER) else self._own

    def _running(self) -> int:
        return sum(desk.admitted for desk in {self._own, self._guests})


def _answer(pool: Pool, query: Query, query_id: str) -> tuple[web.Response, int | None]:
    answer = pool.query(query.sql, query.format, query.parameters, query.database)
    rows = rows_of(answer.format, answer.body)
    body = pack(answer.body, query.encoding)
    headers = _headers(query_id, answer)
    if query.encoding:
        headers["Content-Encoding"] = query.encoding
    return web.Response(body=body, headers=headers), rows


async def _read(request: web.Request) -> Query:
    form: dict[str, str] = {}
    body = b""
    if request.content_type in ("multipart/form-data", "application/x-www-form-urlencoded") and "query" not in request.query:
        if request.content_type == "multipart/form-data":
            form = {k: v for k, v in (await request.post()).items() if isinstance(v, str)}
        else:
            raw = await request.read()
            form, body = ({}, raw) if b"query=" not in raw else (_form(await request.post()), b"")
    elif request.content_type == "multipart/form-data":
        form = _form(await request.post())
    elif request.method == "POST":
        body = await request.read()
    return read_query(dict(request.query), form, body, request.headers)


def _form(fields: object) -> dict[str, str]:
    items = fields.items() if hasattr(fields, "items") else ()
    return {k: v for k, v in items if isinstance(v, str)}


def _headers(query_id: str, answer: QueryResult) -> dict[str, str]:
    summary = {
        "read_rows": str(answer.read_rows),
        "read_bytes": str(answer.read_bytes),
        "written_rows": "0",
        "written_bytes": "0",
        "total_rows_to_read": "0",
        "result_rows": "0",
        "result_bytes": str(len(answer.body)),
        "elapsed_ns": str(round(answer.elapsed_s * 1e9)),
    }
    return {
        "Content-Type": _TYPES.get(answer.format, _TEXT if "JSON" not in answer.format else _TYPES["JSON"]),
        "X-ClickHouse-Format": answer.format,
        "X-ClickHouse-Query-Id": query_id,
        "X-ClickHouse-Timezone": "UTC",
        "X-ClickHouse-Server-Display-Name": "trainhouse",
        "X-ClickHouse-Summary": orjson.dumps(summary).decode(),
    }


def _error(refused: QueryRefusedError, query_id: str) -> web.Response:
    text = whole_characters(str(refused))  # refusals quote from heads
    if not text.startswith("Code: "):
        text = f"Code: {refused.code}. DB::Exception: {text}"
    headers = {"X-ClickHouse-Exception-Code": str(refused.code), "X-ClickHouse-Query-Id": query_id, "Content-Type": _TEXT}
    if refused.code == AUTHENTICATION_FAILED:
        headers["WWW-Authenticate"] = 'Basic realm="ClickHouse server HTTP API"'
        return web.Response(status=401, text=text + "\n", headers=headers)
    return web.Response(status=_STATUS.get(refused.code, 500), text=text + "\n", headers=headers)
