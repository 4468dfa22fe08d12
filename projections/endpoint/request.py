"""A request to ClickHouse's HTTP interface as plain values: which query, which parameters, which format.

Holds: what travels in the URL, in a form and in the body means the same as with a server. Settings are taken and ignored: the
engine is sealed, its limits are the projector's.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import lz4.frame

from trainhouse.projections.errors import QueryRefusedError

BAD_ARGUMENTS = 36
DEFAULT_FORMAT = "TabSeparated"
MAX_QUERY_BYTES = 1024 * 1024
# A request with this header is a guest's: it has connections and limits of its own, so that it can take none of the others' time.
GUEST_HEADER = "X-Trainhouse-Guest"


@dataclass(frozen=True)
class Query:
    """One query. `encoding` is the compression that the client takes, None for none."""

    sql: str
    parameters: dict[str, str]
    format: str
    database: str
    query_id: str
    encoding: str | None


def read_query(url: Mapping[str, str], form: Mapping[str, str], body: bytes, headers: Mapping[str, str]) -> Query:
    """Puts a request together. Raises QueryRefusedError where it makes no sense here."""
    if url.get("decompress") == "1":
        raise QueryRefusedError("decompress=1 (a body in ClickHouse's own compression) is not offered here; send plain SQL", BAD_ARGUMENTS)
    if url.get("compress") == "1":
        raise QueryRefusedError("compress=1 is not offered here; ask for Accept-Encoding with enable_http_compression=1", BAD_ARGUMENTS)
    text = unpack(body, headers.get("Content-Encoding", "")).decode("utf-8", "replace")
    sql = "\n".join(part for part in (url.get("query", ""), form.get("query", ""), text) if part)
    both = {**url, **form}
    return Query(
        sql=sql,
        parameters={k.removeprefix("param_"): v for k, v in both.items() if k.startswith("param_")},
        format=url.get("default_format") or headers.get("X-ClickHouse-Format") or DEFAULT_FORMAT,
        database=url.get("database") or headers.get("X-ClickHouse-Database") or "",
        query_id=url.get("query_id", ""),
        encoding=_encoding(headers.get("Accept-Encoding", "")) if url.get("enable_http_compression") == "1" else None,
    )


def _encoding(accepted: str) -> str | None:
    names = [part.split(";")[0].strip().lower() for part in accepted.split(",")]
    return next((name for name in ("lz4", "gzip", "deflate") if name in names), None)


def pack(body: bytes, encoding: str | None) -> bytes:
    """Compresses a response."""
    if encoding == "lz4":
        return bytes(lz4.frame.compress(body))
    if encoding == "gzip":
        return gzip.compress(body, compresslevel=1)
    if encoding == "deflate":
        return zlib.compress(body, level=1)
    return body


def unpack(body: bytes, encoding: str) -> bytes:
    """Decompresses a request's body. Raises QueryRefusedError on an encoding that is not offered, or on damaged or huge data."""
    try:
        if encoding in ("", "identity"):
            plain = body
        elif encoding == "gzip":
            plain = zlib.decompressobj(31).decompress(body, MAX_QUERY_BYTES + 1)
        elif encoding == "deflate":
            plain = zlib.decompressobj().decompress(body, MAX_QUERY_BYTES + 1)
        elif encoding == "lz4":
            plain = lz4.frame.LZ4FrameDecompressor().decompress(body, MAX_QUERY_BYTES + 1)
        else:
            raise QueryRefusedError(f"Content-Encoding {encoding!r} is not offered; send gzip, deflate, lz4 or plain SQL", BAD_ARGUMENTS)
    except (zlib.error, RuntimeError) as error:
        raise QueryRefusedError(f"the body is no {encoding}: {error}", BAD_ARGUMENTS) from error
    if len(plain) > MAX_QUERY_BYTES:
        raise QueryRefusedError(f"a query may have {MAX_QUERY_BYTES} bytes at most", SYNTAX_TOO_LONG)
    return plain


SYNTAX_TOO_LONG = 62
