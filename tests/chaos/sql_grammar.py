# ruff: noqa: RUF005
"""Texts as an attacker would write them: a grammar of statements around calls that read a file, write one, or reach a port.

Holds: the same seed gives the same texts. Spellings are those in which two readers of SQL differ: quotes of all kinds, escapes,
comments, heredocs, blank characters of Unicode, names for functions, bound values, second statements.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_BLANKS = [" ", "\n", "\t", "/**/", "/* x */", "--\n", "-- '\n", "#!\n", "\u200b", "\u00a0", "\u2003", "\ufeff", " /* /* */ ", "\x0b", ""]
_READERS = ["file", "File", "FILE", "length(file", "hex(file", "catboostEvaluate", "reverseDNSQuery", "dictGet", "filesystemAvailable"]
_SOURCES = ["file", "url", "s3", "remote", "mysql", "postgresql", "executable", "hdfs", "mongodb", "redis", "sqlite", "fileCluster"] + [
    *("iceberg", "deltaLake", "azureBlobStorage", "gcs", "odbc", "jdbc", "python", "merge", "loop", "input", "urlCluster", "icebergLocal"),
]
_WRITES = [
    "INSERT INTO points SELECT 9",
    "DROP TABLE points",
    "CREATE TABLE {n} (a Int8) ENGINE=Memory",
    "ALTER TABLE points DELETE WHERE 1",
] + [
    *("TRUNCATE TABLE points", "INSERT INTO FUNCTION file('{out}', 'CSV', 'a Int8') SELECT 1", "SYSTEM SHUTDOWN", "KILL QUERY WHERE 1"),
    *("SET readonly = 0", "USE system", "BACKUP TABLE points TO File('{out}')", "ATTACH TABLE x FROM '{out}' (a Int8) ENGINE=TinyLog"),
    *(
        "RENAME TABLE points TO p2",
        "OPTIMIZE TABLE points",
        "DETACH TABLE points",
        "CREATE FUNCTION f AS x -> file(x)",
        "EXECUTE AS x SELECT 1",
    ),
]
_PLAIN = [
    "1",
    "number",
    "'text'",
    "length('abc')",
    "sum(number)",
    "[1, 2]",
    "(1, 'x')",
    "NULL",
    "x -> x",
    "{v:String}",
    "now()",
    "1 + 2",
    "*",
]
_FORMATS = ["CSV", "TSV", "JSON", "JSONEachRow", "Native", "Template", "Protobuf", "Null", "SQLInsert", "Prometheus", "MySQLWire"]
_TAILS = ["", "", "", " LIMIT 1", " ORDER BY 1", " SETTINGS max_threads = 1", " SETTINGS readonly = 0", " INTO OUTFILE '{out}'"] + [
    *(" INTO OUTFILE '{out}' APPEND", " FORMAT {format}", " INTO OUTFILE '{out}' FORMAT CSV", "; {write}", ";; SELECT file('{file}')"),
    *(
        " PARALLEL WITH {write}",
        " SETTINGS allow_ddl = 1",
        " UNION ALL SELECT file('{file}')",
        " WITH TOTALS",
        " |> WHERE file('{file}') != ''",
    ),
]
_STATEMENTS = ["SELECT {e}", "SELECT {e}, {e}", "SELECT * FROM {t}", "SELECT {e} FROM {t}", "SELECT {e} FROM {t} WHERE {e}", "({s})"] + [
    *(
        "WITH {e} AS x SELECT x",
        "WITH x AS ({s}) SELECT * FROM x",
        "EXPLAIN {s}",
        "EXPLAIN AST {s}",
        "EXPLAIN SYNTAX {s}",
        "EXPLAIN PLAN {s}",
    ),
    *(
        "DESCRIBE {t}",
        "DESCRIBE ({s})",
        "SHOW TABLES WHERE {e}",
        "SHOW COLUMNS FROM points WHERE {e}",
        "EXISTS TABLE points",
        "FROM {t} SELECT {e}",
    ),
    *("SELECT * APPLY({r}) FROM (SELECT '{file}')", "SELECT * APPLY(x -> {e}) FROM numbers(1)", "SELECT arrayMap({r}, ['{file}'])"),
    *("SELECT arrayMap(x -> {e}, [1])", "SELECT 1 IN (SELECT {e})", "SELECT 1 FROM numbers(1) ORDER BY {e}", "VALUES ({e})", "{write}"),
    *(
        "SELECT number FROM numbers(2) GROUP BY number HAVING {e}",
        "SELECT count() OVER (ORDER BY {e}) FROM numbers(1)",
        "{s} UNION ALL {s}",
    ),
    *(
        "SELECT * FROM values('a String, b String ALIAS {r}(''{file}'')', ('x'))",
        "SELECT a, b FROM values('a String, b String DEFAULT {e}', ('x'))",
    ),
    *(
        "SELECT * FROM format(CSV, 'a String', '{file}')",
        "SELECT 1 IN system.processes",
        "SELECT query FROM system.processes",
        "SELECT * FROM {t} JOIN {t} ON {e}",
    ),
    *(
        "WITH `{r}` AS f SELECT arrayMap(f, ['{file}'])",
        "SELECT $$ {e} $$",
        "SELECT 1 LIMIT {e}",
        "SELECT 1 FROM numbers(1) ARRAY JOIN [{e}] AS z",
    ),
    *(
        "SELECT * FROM view({s})",
        "SELECT * REPLACE ({e} AS number) FROM numbers(1)",
        "SELECT {{f:Identifier}}",
        "SELECT * FROM {{f:Identifier}}",
    ),
    *(
        "SELECT sumIf(1, {e})",
        "SELECT if({e}, {e}, 2)",
        "SELECT CAST({e}, 'String')",
        "SELECT {e}::String",
        "SELECT [{e}][1], ({e}, 1).1, {e} ? 1 : 2",
    ),
    *(
        "SELECT CASE WHEN {e} THEN {e} END",
        "SELECT EXISTS({s})",
        "SELECT ({s})",
        "SELECT b FROM (SELECT 1 AS a, {e} AS b SETTINGS max_threads = 1)",
    ),
    *(
        "WITH RECURSIVE r AS (SELECT {e} AS n UNION ALL SELECT n FROM r WHERE 0) SELECT * FROM r",
        "SELECT throwIf(1, {e})",
        "SELECT DISTINCT ON ({e}) 1",
    ),
]


@dataclass(frozen=True)
class Targets:
    """What must stay untouched: a file with a secret in it, a port that listens, a folder in which nothing may appear."""

    file: str
    port: int
    out: str


class Grammar:
    """`text()` gives the next one."""

    def __init__(self, seed: int, targets: Targets) -> None:
        self._random = random.Random(seed)
        self._targets = targets

    def text(self) -> str:
        """A statement, sometimes damaged."""
        made = self._statement(0) + self._fill(self._random.choice(_TAILS))
        made = self._blanks(made) if self._random.random() < 0.4 else made
        return self._damaged(made) if self._random.random() < 0.15 else made

    def _statement(self, depth: int) -> str:
        template = self._random.choice(_STATEMENTS if depth < 2 else _STATEMENTS[:4])
        return self._fill(template, depth)

    def _fill(self, template: str, depth: int = 0) -> str:
        at, made = 0, []
        while at < len(template):
            if template.startswith("{{", at):
                made.append("{")
                at += 2
            elif template.startswith("}}", at):
                made.append("}")
                at += 2
            elif template[at] == "{" and (end := template.find("}", at)) > 0:
                made.append(self._part(template[at + 1 : end], depth))
                at = end + 1
            else:
                made.append(template[at])
                at += 1
        return "".join(made)

    def _part(self, name: str, depth: int) -> str:
        choose = self._random.choice
        if name == "s":
            return self._statement(depth + 1)
        if name == "e":
            return self._expression(depth)
        if name == "t":
            return self._table(depth)
        if name == "r":
            return self._spelled(choose(_READERS[:3]))
        if name == "write":
            return self._fill(choose(_WRITES), depth)
        return {
            "file": self._targets.file,
            "out": self._targets.out + str(self._random.randrange(1000)),
            "format": choose(_FORMATS),
            "n": f"t{self._random.randrange(99)}",
            "v:String": "{v:String}",
        }[name]

    def _expression(self, depth: int) -> str:
        roll = self._random.random()
        if roll < 0.35:
            return self._random.choice(_PLAIN)
        if roll < 0.45 and depth < 2:
            return f"(SELECT {self._expression(depth + 1)} FROM {self._table(depth + 1)})"
        reader = self._random.choice(_READERS)
        argument = self._literal(self._targets.file)
        if "(" in reader:
            outer, inner = reader.split("(")
            return f"{self._spelled(outer)}({self._spelled(inner)}({argument}))"
        return f"{self._spelled(reader)}({argument})"

    def _table(self, depth: int) -> str:
        roll = self._random.random()
        if roll < 0.3:
            return self._random.choice(
                ["numbers(3)", "points", "system.one", "system.processes", "system.query_log", "`" + self._targets.file + "`"]
            )
        if roll < 0.4 and depth < 2:
            return f"({self._statement(depth + 1)})"
        source = self._spelled(self._random.choice(_SOURCES))
        where = self._random.choice([self._targets.file, f"http://127.0.0.1:{self._targets.port}/x", f"127.0.0.1:{self._targets.port}"])
        more = self._random.choice(["", ", 'LineAsString'", ", 'CSV', 'a String'", ", 'db', 'table', 'user', 'password'", ", system.one"])
        return f"{source}({self._literal(where)}{more})"

    def _spelled(self, name: str) -> str:
        at = self._random.randrange(len(name))
        return self._random.choice(
            [name, name, f"`{name}`", f'"{name}"', f"“{name}”", f"{name[:at]}\u200b{name[at:]}", f"{name}/**/", f"{name} \n"]
            + [
                f"`{name[:at]}\\x{ord(name[at]):02x}{name[at + 1 :]}`",
                f"{name} --x\n",
                f"{name}\u00a0",
                f"`\\{name}`",
                f'"{name[0]}\\{name[1:]}"',
            ]
        )

    def _literal(self, text: str) -> str:
        at = self._random.randrange(len(text))
        return self._random.choice(
            [
                f"'{text}'",
                f"'{text}'",
                f"$${text}$$",
                f"$a${text}$a$",
                f"‘{text}’",
                f"concat('{text[:at]}', '{text[at:]}')",
                f"'{text}' || ''",
            ]
            + [f"'{text[:at]}\\x{ord(text[at]):02x}{text[at + 1 :]}'", f"unhex('{text.encode().hex()}')", f"x'{text.encode().hex()}'"]
        )

    def _blanks(self, text: str) -> str:
        return "".join(self._random.choice(_BLANKS) if c == " " and self._random.random() < 0.5 else c for c in text)

    def _damaged(self, text: str) -> str:
        at = self._random.randrange(len(text) + 1)
        piece = self._random.choice(
            ["'", "`", '"', "$$", "/*", "*/", "--", ";", "\\", "\0", "(", ")", "{", "}", "\n", "“", "#", "\udc80", "é"]
        )
        return text[:at] + piece + text[at + self._random.randrange(2) :]
