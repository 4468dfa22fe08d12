"""What the SQL endpoint lets through, without an engine: the lexer, the gate, the request, the header of an empty block."""

from __future__ import annotations

import gzip

import pytest

from trainhouse.projections.endpoint.gate import Gate
from trainhouse.projections.endpoint.lexer import tokens
from trainhouse.projections.endpoint.native import header_block
from trainhouse.projections.endpoint.request import MAX_QUERY_BYTES, read_query
from trainhouse.projections.errors import QueryRefused

GATE = Gate(frozenset({"file", "url", "s3", "numbers", "python", "remote"}))


@pytest.mark.parametrize(
    ("query", "body", "format"),
    [
        ("SELECT 1", "SELECT 1", None),
        ("SELECT 1;;", "SELECT 1", None),
        ("select 1 format JSON", "select 1 ", "JSON"),
        ("SELECT 1 /* ; */ FORMAT TSV -- end", "SELECT 1 /* ; */ ", "TSV"),
        ("(SELECT 1) UNION ALL (SELECT 2)", "(SELECT 1) UNION ALL (SELECT 2)", None),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x", None),
        ("SELECT count() FROM numbers(5)", "SELECT count() FROM numbers(5)", None),
        ("SELECT '; DROP TABLE jobs', \"file\" FROM `url`", "SELECT '; DROP TABLE jobs', \"file\" FROM `url`", None),
        ("SELECT 1 AS format", "SELECT 1 AS format", None),
        ("SELECT 'it''s', 'a\\'b'", "SELECT 'it''s', 'a\\'b'", None),
        ("SHOW TABLES", "SHOW TABLES", None),
    ],
)
def test_reads_pass_and_their_format_is_found(query: str, body: str, format: str | None) -> None:
    passed = GATE.check(query)
    assert (passed.body.strip(), passed.format) == (body.strip(), format)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "  -- nothing\n",
        "INSERT INTO t VALUES (1)",
        "/* SELECT */ DROP TABLE t",
        "SELECT 1; SELECT 2",
        "SELECT * FROM s3('x')",
        "SELECT * FROM S3 ('x')",
        "SELECT * FROM \"s3\"('x')",
        "SELECT * FROM `s\\3`('x')",
        "SELECT file/**/('/etc/passwd')",
        "SELECT 1 INTO/**/OUTFILE 'x'",
        "SELECT 'open",
        "SELECT /* open",
        "SELECT aiGenerate('x', 'y')",
        "`SELECT` 1",
    ],
)
def test_the_rest_is_refused_with_a_code(query: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        GATE.check(query)
    assert refused.value.code in (62, 164)


def test_tokens_know_where_they_stand() -> None:
    query = "SELECT /* c */ `a``b`, 'x' -- d\n, 1.5e3"
    found = tokens(query)
    assert [(t.kind, query[t.start : t.end]) for t in found] == [
        ("word", "SELECT"),
        ("name", "`a``b`"),
        ("sign", ","),
        ("literal", "'x'"),
        ("sign", ","),
        ("literal", "1.5e3"),
    ]


def test_a_header_block_is_that_of_the_native_format() -> None:
    assert header_block([("a", "UInt8")]) == b"\x01\x00\x01a\x05UInt8"
    assert header_block([("x" * 200, "String")])[:4] == b"\x01\x00\xc8\x01"
    assert header_block([]) == b""


def test_a_request_is_put_together_from_url_form_and_body() -> None:
    query = read_query(
        {"query": "SELECT {a:String}", "param_a": "1", "default_format": "JSON", "max_threads": "9"},
        {"param_b": "2"},
        gzip.compress(b"FORMAT CSV"),
        {"Content-Encoding": "gzip", "Accept-Encoding": "br, gzip;q=0.5"},
    )
    assert (query.sql, query.parameters, query.format, query.encoding) == (
        "SELECT {a:String}\nFORMAT CSV",
        {"a": "1", "b": "2"},
        "JSON",
        None,
    )
    assert read_query({"query": "x", "enable_http_compression": "1"}, {}, b"", {"Accept-Encoding": "br, gzip"}).encoding == "gzip"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"x" * (MAX_QUERY_BYTES + 1), {}),
        (gzip.compress(b"x" * (MAX_QUERY_BYTES * 50)), {"Content-Encoding": "gzip"}),
        (b"no gzip", {"Content-Encoding": "gzip"}),
        (b"", {"Content-Encoding": "br"}),
    ],
)
def test_a_body_is_bounded_and_damage_is_told(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(QueryRefused):
        read_query({}, {}, body, headers)
