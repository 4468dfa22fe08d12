"""SQL of strangers against gate and engine: nothing reads a file, writes, or reaches a port. Each attack was shown to work once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.chaos.sql_fuzz import LIMITS, MEMORY, Range, bare, fuzz, shooting_range
from trainhouse.projections.endpoint.engine import ReadPool, _text
from trainhouse.projections.endpoint.gate_cache import KeptShapes
from trainhouse.projections.errors import QueryRefusedError
from trainhouse.projections.store.clickhouse import embedded_options

# A structure as text, whose DEFAULT the engine folds as soon as it reads it: an enumeration whose name is the file's content.
_FOLDED = "a DEFAULT CAST(1, concat('Enum8(''x', substring(file('{file}'),1,32), ''' = 1)'))".replace("'", "''")
READS = [
    f"SELECT structureToProtobufSchema('{_FOLDED}','M')",
    f"SELECT structureToCapnProtoSchema('{_FOLDED}','M')",
    "SELECT length(`\\x66ile`('{file}'))",
    "SELECT “file”('{file}')",
    "SELECT \u200bfile\u200b('{file}')",
    "SELECT file/**/('{file}')",
    "SELECT file($${file}$$)",
    "SELECT arrayMap(file, ['{file}'])",
    "SELECT arrayMap(`\\x66ile`, ['{file}'])",
    "SELECT * APPLY(file) FROM (SELECT '{file}')",
    "SELECT * APPLY(x -> file(x)) FROM (SELECT '{file}')",
    "WITH file AS f SELECT arrayMap(f, ['{file}'])",
    "SELECT a, b FROM values('a String, b String ALIAS file(''{file}'')', ('x'))",
    "SELECT a, b FROM values(concat('a String, b String ALIAS fi', 'le(''{file}'')'), ('x'))",
    "SELECT * FROM (SELECT file('{file}') SETTINGS max_threads = 1)",
    "SHOW TABLES WHERE throwIf(1, file('{file}'))",
    "EXPLAIN SELECT file('{file}')",
    "SELECT * FROM file('{file}', 'LineAsString')",
    "SELECT * FROM `{file}`",
    "SELECT $$ ' $$, file('{file}') -- $$",
    "SELECT 1; SELECT file('{file}')",
    "SELECT * FROM system.processes",
    "SELECT 1 IN system.processes",
    "SELECT dictGet('{file}', 'b', 1)",
]
WRITES = [
    "SELECT $$ 1 $$ INTO OUTFILE '{out}' -- $$",
    "SELECT 1 INTO/**/OUTFILE '{out}'",
    "SELECT 1; INSERT INTO points VALUES (9)",
    "SELECT 1;\u200bINSERT INTO points VALUES (9)",
    "INSERT INTO FUNCTION file('{out}', 'CSV', 'a Int8') SELECT 1",
    "SELECT 1 PARALLEL WITH INSERT INTO points SELECT 9",
    "DROP TABLE points",
    "SELECT * FROM url('http://127.0.0.1:{port}/', 'LineAsString')",
    "SELECT * FROM remote('127.0.0.1:{port}', system.one)",
    "SELECT * FROM `s\\x33`('http://127.0.0.1:{port}/x', 'LineAsString')",
]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    with shooting_range(tmp_path_factory.mktemp("sql")) as made:
        yield made


@pytest.fixture(scope="module")
def pool(at: Range) -> Iterator[ReadPool]:
    made = ReadPool(at.engine, embedded_options(MEMORY, 2), LIMITS, 1)
    yield made
    made.close()


@pytest.mark.parametrize("attack", READS + WRITES)
def test_what_was_shown_is_refused(at: Range, pool: ReadPool, attack: str) -> None:
    before, files = at.rows(), at.outside()
    text = attack.replace("{file}", at.targets.file).replace("{out}", at.targets.out).replace("{port}", str(at.targets.port))
    with pytest.raises(QueryRefusedError) as refused:
        pool.query(text, "TSV", {})
    assert at.secret not in str(refused.value) and not at.reached
    assert at.rows() == before and at.outside() == files


@pytest.mark.parametrize("kind", ["Identifier", "Nullable(Identifier)"])
def test_a_bound_value_is_no_name(at: Range, pool: ReadPool, kind: str) -> None:
    for text in (f"SELECT * FROM {{t:{kind}}}", f"SELECT arrayMap({{t:{kind}}}, ['{at.targets.file}'])"):
        with pytest.raises(QueryRefusedError):
            pool.query(text, "TSV", {"t": "file"})


def test_a_structure_is_judged_each_time_or_not_taken(at: Range, pool: ReadPool) -> None:
    text = "SELECT y FROM values({s:String}, 1)"
    for structure in ("y UInt8", f"x UInt8, y String ALIAS toString(file('{at.targets.file}'))"):
        with pytest.raises(QueryRefusedError):
            pool.query(text, "TSV", {"s": structure})


def test_bound_values_are_values(pool: ReadPool, tmp_path: Path) -> None:
    nasty = f"'), file('{tmp_path}"
    assert pool.query("SELECT {v:String}", "TSVRaw", {"v": nasty}).body.decode() == nasty + "\n"


@pytest.mark.parametrize("form", ["Template", "Protobuf", "Dataframe", "CapnProto", "JSON INTO OUTFILE 'x'"])
def test_forms_of_answers_are_those_offered(pool: ReadPool, form: str) -> None:
    with pytest.raises(QueryRefusedError):
        pool.query("SELECT 1", form, {})


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"$a{n}$" for n in range(6000)),
        "SELECT " + "(" * 100_000,
        "SELECT " + "not " * 50_000 + "1",
        "SELECT " + "CASE WHEN " * 20_000,
        "SELECT " + "((a,b)->(" * 10_000,
        "SELECT " + "INTERVAL " * 20_000,
        "SELECT '" + "x" * 300_000,
        "SELECT " + "[" * 100_000,
    ],
)
def test_texts_that_are_dear_to_parse_are_bounded(pool: ReadPool, text: str) -> None:
    began_s = time.process_time()
    with pytest.raises(QueryRefusedError):
        pool.query(text, "TSV", {})
    assert time.process_time() - began_s < 3


def test_two_thousand_texts_of_the_grammar_do_nothing(at: Range) -> None:
    tried = fuzz(at, seed=12, texts=2000)
    assert tried.breaches == []
    assert tried.ends["answered"] > 20


def test_the_grammar_has_teeth(at: Range) -> None:
    assert bare(at, seed=12, texts=150) > 0


def asked(pool: ReadPool, shapes: KeptShapes, text: str, database: str = "") -> int:
    """How many questions the engine was asked for a verdict of a statement that passes."""
    questions: list[str] = []
    connection = pool._idle.get()

    def ask(question: str, values: Mapping[str, str]) -> str:
        questions.append(question)
        return _text(connection, question, values)

    try:
        pool.gate.check(text, ask, {}, database, shapes)
    finally:
        pool._idle.put(connection)
    return len(questions)


def test_a_statement_that_differs_in_literals_alone_is_not_parsed_again(pool: ReadPool) -> None:
    shapes = KeptShapes()
    assert asked(pool, shapes, "SELECT n, 'a' FROM points WHERE n = 1 LIMIT 3") == 2
    assert asked(pool, shapes, "select n , 'it''s; x' FROM points -- x\n where n = 0x7 limit 9") == 1
    for other in (
        "SELECT n, 5 FROM points WHERE n = 1 LIMIT 3",
        "SELECT n, 'a' FROM points WHERE n > 1 LIMIT 3",
        "SELECT n, 'a' FROM points WHERE n = -1 LIMIT 3",
        "SELECT n, 'a' FROM other WHERE n = 1 LIMIT 3",
        "SELECT n, length('a') FROM points WHERE n = 1 LIMIT 3",
    ):
        assert asked(pool, shapes, other) == 2, other
    assert asked(pool, shapes, "SELECT n, 'a' FROM points WHERE n = 1 LIMIT 3", "system") == 2, "another database"


@pytest.mark.parametrize("text", ["SELECT * FROM values('a String', ('{}'))", "SHOW TABLES LIKE '{}'", "EXPLAIN SELECT '{}'"])
def test_where_a_verdict_may_depend_on_literals_each_text_is_parsed(pool: ReadPool, text: str) -> None:
    shapes = KeptShapes()
    assert [asked(pool, shapes, text.format(n)) for n in range(3)] == [2, 2, 2]


def test_what_is_refused_is_refused_again_in_each_shape(pool: ReadPool, at: Range) -> None:
    """Harmless first, so that a shape is kept wherever one is; then the same with a literal that does harm."""
    for attack in READS:
        for path in ("x", "y", at.targets.file):
            with pytest.raises(QueryRefusedError):
                pool.query(attack.format(file=path), "TSV", {})
    assert pool.query("SELECT * FROM values('a String', ('x'))", "TSV", {}).body == b"x\n"
    with pytest.raises(QueryRefusedError, match="plain values"):
        pool.query(f"SELECT * FROM values('a String ALIAS file(''{at.targets.file}'')', ('x'))", "TSV", {})
