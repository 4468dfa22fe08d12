"""What the SQL endpoint lets through, without an engine: words, tree and gate over what an engine says; the request; an empty block."""

from __future__ import annotations

import gzip

import pytest

from trainhouse.projections.endpoint.allowed import Known, allowed
from trainhouse.projections.endpoint.engine import header_block
from trainhouse.projections.endpoint.gate import Gate, check_format, spelling
from trainhouse.projections.endpoint.gate_cache import Verdicts
from trainhouse.projections.endpoint.request import MAX_QUERY_BYTES, read_query
from trainhouse.projections.endpoint.sql_spelling import words
from trainhouse.projections.endpoint.tree import nodes
from trainhouse.projections.errors import QueryRefusedError

GATE = Gate(
    Known.of(
        [("function", name) for name in ("file", "length", "dictGet", "sum")]
        + [("table function", name) for name in ("file", "url", "numbers")]
        + [("system table", "processes"), ("view", "run_compare")]
    )
)
SELECT = "SelectWithUnionQuery (children 1)\n ExpressionList (children 1)\n  SelectQuery (children 1)\n   ExpressionList (children 1)\n"


def tree(*lines: str) -> str:
    return SELECT + "".join(f"    {line}\n" for line in lines)


def test_the_engine_s_spelling_loses_its_format_alone() -> None:
    passed = GATE.spelled("SELECT 1 AS `format` FORMAT JSON")
    assert (passed.body, passed.format) == ("SELECT 1 AS `format`", "JSON")
    assert GATE.spelled("SELECT a.FORMAT AS FORMAT").format is None


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT length(file('x'))",
        "SELECT arrayMap(file, ['x'])",
        "SELECT * APPLY file FROM t",
        "WITH file AS f SELECT f",
        "SELECT 1 INTO OUTFILE 'x'",
        "SELECT * FROM url('x')",
        "SELECT * FROM system.processes",
        "SELECT * FROM `system`.`processes`",
        "SELECT 1 SETTINGS max_threads = 1",
        "SELECT {x:Identifier}",
        "SELECT 1; SELECT 2",
        "SELECT 1 /* hidden */",
        "SELECT $$ text $$",
        "SELECT `a\\nb`",
        "SELECT 1 FORMAT Template",
        "SELECT “file”",
        "",
    ],
)
def test_words_that_may_not_stand_in_a_statement_are_refused(statement: str) -> None:
    with pytest.raises(QueryRefusedError) as refused:
        GATE.spelled(statement)
    assert refused.value.code in (62, 73, 164)


def test_names_of_functions_may_be_aliases_and_columns_of_a_table() -> None:
    for statement in ("SELECT 'file' AS file", "SELECT t.file FROM t", "SELECT 'INTO OUTFILE; url(1)'"):
        assert GATE.spelled(statement).body == statement


def test_tables_of_the_system_are_hidden_also_when_it_is_the_database() -> None:
    with pytest.raises(QueryRefusedError):
        GATE.spelled("SELECT * FROM processes", "system")
    assert GATE.spelled("SELECT * FROM processes").body


@pytest.mark.parametrize(
    "explained",
    [
        "DropQuery  t (children 1)\n Identifier t\n",
        "InsertQuery (children 1)\n Identifier t\n",
        tree("Function secretReader (children 1)"),
        tree("TableExpression (children 1)", " Function s3 (children 1)"),
        tree("TableExpression (children 1)", " TableIdentifier /etc/passwd"),
        tree("Identifier system.processes"),
        tree("SomethingNew (children 1)"),
        tree("Set"),
        tree("Identifier a", "", "b"),
        SELECT + SELECT,
        tree("TableExpression (children 1)", " Function values (children 1)", "  ExpressionList", "   Literal 'a String ALIAS file(1)'"),
        tree("TableExpression (children 1)", " Function values (children 1)", "  ExpressionList", "   Function concat (children 1)"),
    ],
)
def test_trees_that_do_more_than_read_are_refused(explained: str) -> None:
    with pytest.raises(QueryRefusedError):
        GATE.parsed(GATE.spelled("SELECT 1"), explained)


def test_a_tree_of_what_is_allowed_passes() -> None:
    explained = tree(
        "Function sumIfOrNull (alias x) (children 1)",
        "TableExpression (children 1)",
        " Function numbers (children 1)",
        "TableExpression (children 1)",
        " Function run_compare (children 1)",
        "TableExpression (children 1)",
        " Function values (children 1)",
        "  ExpressionList",
        "   Literal 'a String, b Array(UInt8)'",
    )
    GATE.parsed(GATE.spelled("SELECT 1"), explained)


def test_a_select_that_the_tree_does_not_show_is_refused() -> None:
    with pytest.raises(QueryRefusedError):
        GATE.parsed(GATE.spelled("SHOW TABLES WHERE name IN (SELECT 1)"), "ShowTables\n")
    with pytest.raises(QueryRefusedError):
        GATE.parsed(GATE.spelled("SELECT * APPLY (x -> unknown(x)) FROM t"), tree("Asterisk"))


def test_the_question_for_the_spelling_has_nothing_of_the_text_in_it() -> None:
    assert spelling(" ; DROP") == "SELECT formatQuerySingleLine(unhex('203b2044524f50'))"
    for text in ("x" * 300_000, "$a$ " * 20_000, " ; \n"):
        with pytest.raises(QueryRefusedError):
            spelling(text)


def test_words_are_read_in_one_pass_and_the_tree_knows_its_parents() -> None:
    assert [(w.kind, w.text) for w in words("SELECT `a b`, 'x\\'y', {n:Array(String)}")] == [
        ("word", "SELECT"),
        ("name", "a b"),
        ("sign", ","),
        ("text", "'x\\'y'"),
        ("sign", ","),
        ("bound", "{n:Array(String)}"),
    ]
    assert [n.parent for n in nodes(tree("Literal 'x'", " Literal 'y'", "Literal 1"))] == [None, 0, 1, 2, 3, 4, 3]


def test_lists_and_verdicts_are_bounded() -> None:
    lists = allowed()
    assert lists.function("quantileExactIfOrNull") and not lists.function("file") and not lists.function("dictGetIf")
    assert not lists.table_functions & {"file", "url", "s3", "remote", "merge", "python", "executable"}
    with pytest.raises(QueryRefusedError):
        check_format("Protobuf")
    kept = Verdicts(most=2)
    for text in "abc":
        kept.keep(text, "", GATE.spelled("SELECT 1"))
    assert kept.get("a", "") is None and kept.get("c", "") is not None


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
    with pytest.raises(QueryRefusedError):
        read_query({}, {}, body, headers)
