"""Read-only connections to the embedded engine, and one query on one of them.

Holds: a connection runs one query at a time and is `readonly`; a connection on which a query failed is thrown away, because the
engine leaves the failed query's partial output in it and would hand that out with the next result (measured).
Never: writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, LifoQueue
from urllib.parse import urlencode

import chdb
from chdb.state.sqlitelike import Connection

from trainhouse.projections.endpoint.allowed import CATALOGUE, Known, known
from trainhouse.projections.endpoint.gate import Gate, Passed, check_format
from trainhouse.projections.endpoint.gate_cache import Verdicts
from trainhouse.projections.errors import QueryRefusedError

TOO_MANY_QUERIES = 202
UNKNOWN_DATABASE = 81
_CODE = re.compile(r"Code: (\d+)")
_OWN_QUESTION = re.compile(r": In scope SELECT formatQuerySingleLine\(.*(?=\. \([A-Z_]+\))", re.DOTALL)
DATABASES = frozenset({"", "default", "__default__", "system", "information_schema", "INFORMATION_SCHEMA"})


@dataclass(frozen=True)
class Limits:
    """Limits of one query. A query beyond a limit fails with ClickHouse's own error for it."""

    time_s: float
    result_rows: int
    result_bytes: int
    memory_bytes: int
    threads: int = 2

    def statements(self) -> list[str]:
        """As settings of a connection; the last one seals them."""
        return [
            f"SET max_execution_time = {self.time_s}",
            f"SET max_result_rows = {self.result_rows}",
            f"SET max_result_bytes = {self.result_bytes}",
            "SET result_overflow_mode = 'throw'",
            f"SET max_memory_usage = {self.memory_bytes}",
            f"SET max_threads = {self.threads}",
            "SET max_query_size = 1048576",
            "SET max_parser_backtracks = 100000",
            # A condition on a column behind joins marks granules for questions that have no such condition: rows were missed (26.9).
            "SET use_query_condition_cache = 0",
            "SET readonly = 1",
        ]


@dataclass(frozen=True)
class QueryResult:
    """Result of a query: bytes in `format`, and the counts for X-ClickHouse-Summary."""

    body: bytes
    format: str
    read_rows: int
    read_bytes: int
    elapsed_s: float


class ReadPool:
    """At most `size` queries at once; `query` blocks and may be called from any thread."""

    def __init__(self, folder: Path, options: Mapping[str, str], limits: Limits, size: int) -> None:
        self._address = f"{folder.resolve()}?{urlencode(dict(options))}"
        self._limits = limits
        self._idle: LifoQueue[Connection] = LifoQueue()
        for _ in range(size):
            self._idle.put(self._open())
        self._verdicts = Verdicts()
        self.gate = Gate(self._known())

    def query(self, sql: str, default_format: str, parameters: Mapping[str, str], database: str = "", wait_s: float = 30.0) -> QueryResult:
        """Runs one read. Raises QueryRefusedError with ClickHouse's code, whatever goes wrong."""
        if database not in DATABASES:
            raise QueryRefusedError(f"database {database!r} does not exist; leave it out, or use default or system", UNKNOWN_DATABASE)
        check_format(default_format)
        try:
            connection = self._idle.get(timeout=wait_s)
        except Empty:
            raise QueryRefusedError(f"no connection became free in {wait_s:.0f} s; try again", TOO_MANY_QUERIES) from None
        whole = True  # what the gate asks fails before it has output
        try:
            passed = self._passed(connection, sql, parameters, database)
            whole = False
            answer = self._run(connection, passed.body, passed.format or default_format, parameters, database)
            whole = True
            return answer
        except (chdb.ChdbError, RuntimeError) as error:
            raise _refused(error) from error
        finally:
            self._idle.put(connection if whole else self._reopen(connection))

    def _passed(self, connection: Connection, sql: str, parameters: Mapping[str, str], database: str) -> Passed:
        passed = self._verdicts.get(sql, database)
        if passed is None:
            passed = self.gate.check(
                sql, lambda question, values: _text(connection, question, values), parameters, database, self._verdicts.shapes
            )
            self._verdicts.keep(sql, database, passed)
        return passed

    def close(self) -> None:
        """Closes the connections that are idle."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return

    def _run(self, connection: Connection, body: str, chosen: str, parameters: Mapping[str, str], database: str) -> QueryResult:
        elsewhere = database not in ("", "default", "__default__")
        if elsewhere:
            connection.query(f"USE {database}", "TSV")
        bound = dict(parameters)
        result = connection.query(body, chosen, params=bound)
        data: bytes = result.bytes() or b""
        if not data and chosen == "Native":
            # A server sends the columns of an empty result; the embedded engine sends nothing.
            described = json.loads(connection.query(body, "JSON", params=bound).bytes() or b"{}")
            data = header_block([(c["name"], c["type"]) for c in described.get("meta", [])])
        answer = QueryResult(data, chosen, result.rows_read(), result.bytes_read(), result.elapsed())
        if elsewhere:
            connection.query("USE default", "TSV")
        return answer

    def _open(self) -> Connection:
        connection: Connection = chdb.connect(self._address)
        for statement in self._limits.statements():
            connection.query(statement, "TSV")
        return connection

    def _reopen(self, broken: Connection) -> Connection:
        fresh = self._open()
        broken.close()
        return fresh

    def _known(self) -> Known:
        connection = self._idle.get()
        try:
            return known(_text(connection, CATALOGUE))
        finally:
            self._idle.put(connection)


def _text(connection: Connection, question: str, values: Mapping[str, str] | None = None) -> str:
    answer: bytes = connection.query(question, "TSVRaw", params=dict(values or {})).bytes() or b""
    return answer.decode("utf-8", "replace")


def _refused(error: Exception) -> QueryRefusedError:
    text = _OWN_QUESTION.sub("", str(error))
    start = text.find("Code: ")
    code = _CODE.search(text)
    return QueryRefusedError(text[start:] if start > 0 else text, int(code[1]) if code else 1002)


def header_block(columns: Sequence[tuple[str, str]]) -> bytes:
    """A block of ClickHouse's Native format without rows, for these (name, type) columns; empty where there are no columns.

    Byte for byte what a server sends for an empty result without a protocol version.
    """
    if not columns:
        return b""
    return (
        _native_count(len(columns))
        + _native_count(0)
        + b"".join(_native_text(name) + _native_text(column_type) for name, column_type in columns)
    )


def _native_text(text: str) -> bytes:
    raw = text.encode()
    return _native_count(len(raw)) + raw


def _native_count(number: int) -> bytes:
    """LEB128, as the format wants lengths."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
