"""Gate of SQL statements: passes one that reads and names only allowed things. The first of two walls.

Why not by rules over the user's text: two programs that read one text differently leave a gap between them. So the engine's formatter
spells the statement, and the engine's parser says what is in it; here is only judged. `spelling` and `parsing` are the two questions.
Holds: what runs is the engine's own spelling, the same text that was parsed; settings in a statement are refused, the connection's
count; a name of a refused function is refused wherever it stands, since the engine takes names for functions (`arrayMap(file, …)`).
Never: runs anything, and never changes a statement, but for the FORMAT clause that it takes off.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainhouse.projections.endpoint.allowed import SYSTEM_DATABASES, Known, allowed
from trainhouse.projections.endpoint.sql_spelling import SYNTAX_ERROR, Word, words
from trainhouse.projections.endpoint.tree import Node, nodes
from trainhouse.projections.errors import QueryRefusedError

READONLY = 164
UNKNOWN_FORMAT = 73
MAX_STATEMENT_BYTES = 256 * 1024
# The engine's lexer looks for the end of each `$tag$` in all that follows.
MAX_DOLLAR_WORK = 32 * 1024**2

_READS = frozenset({"SelectWithUnionQuery", "SelectIntersectExceptQuery", "SelectQuery", "DescribeQuery", "Explain"})
_SHOWS = frozenset(
    {"ShowTables", "ShowColumns", "ShowFunctions", "ShowIndexes"}
    | {"ShowCreateTableQuery", "ShowCreateViewQuery", "ShowCreateDatabaseQuery"}
    | {"ExistsTableQuery", "ExistsViewQuery", "ExistsDatabaseQuery"}
)
_PARTS = frozenset(
    {"ExpressionList", "Function", "Identifier", "TableIdentifier", "Literal", "Asterisk", "QualifiedAsterisk", "Subquery", "WithElement"}
    | {"TablesInSelectQuery", "TablesInSelectQueryElement", "TableExpression", "TableJoin", "ArrayJoin", "SampleRatio"}
    | {"OrderByElement", "StorageOrderByElement", "InterpolateElement", "WindowDefinition", "WindowListElement", "Set", "TTLElement"}
    | {"ColumnsRegexpMatcher", "ColumnsListMatcher", "QualifiedColumnsRegexpMatcher", "QualifiedColumnsListMatcher"}
    | {"ColumnsTransformerList", "ColumnsApplyTransformer", "ColumnsExceptTransformer", "ColumnsReplaceTransformer"}
    | {"ColumnsReplaceTransformer::Replacement", "Lambda", "DataType", "QueryParameter", "Collation", "ExpressionElement"}
)
_LITERALS = frozenset({"text", "number"})
# Words before a bracket that are no calls, in what the tree does not show.
_NO_CALLS = frozenset({"IN", "AND", "OR", "NOT", "WHERE", "LIKE", "ILIKE", "BETWEEN", "THEN", "WHEN", "ELSE"})
NO_SETTINGS = "SETTINGS are not offered here: the limits are the endpoint's; leave the clause out"
_PLAIN_TABLE = re.compile(r"^(?:[A-Za-z_]\w*\.)?[A-Za-z_]\w*$")
_STRUCTURE = re.compile(r"^'[A-Za-z0-9_ ,()]*'$")
_EXPRESSIONS = re.compile(r"\b(?:DEFAULT|MATERIALIZED|ALIAS|EPHEMERAL|CODEC|TTL)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Passed:
    """A statement that may run, in the engine's spelling. `format` is its own FORMAT, if any, which `body` lacks."""

    body: str
    format: str | None
    words: tuple[Word, ...]


class Shapes(Protocol):
    """The shapes of statements that passed lately, by database."""

    def has(self, shape: str, database: str) -> bool:
        """Returns whether it passed."""

    def keep(self, shape: str, database: str) -> None:
        """It passed."""


Ask = Callable[[str, Mapping[str, str]], str]
"""The engine's answer to one question with bound values, as plain text."""


def spelling(text: str) -> str:
    """The question how the engine spells a statement; the text travels as hex, so nothing of it is part of the question."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_STATEMENT_BYTES:
        raise QueryRefusedError(f"a query may have {MAX_STATEMENT_BYTES} bytes at most", SYNTAX_ERROR)
    if raw.count(b"$") * len(raw) > MAX_DOLLAR_WORK:
        raise QueryRefusedError("the query has too many `$` for its length; write text in single quotes", SYNTAX_ERROR)
    if not raw.strip(b"; \t\r\n"):
        raise QueryRefusedError("the query is empty; send SQL in `query` or in the body", SYNTAX_ERROR)
    return f"SELECT formatQuerySingleLine(unhex('{raw.hex()}'))"


def parsing(passed: Passed) -> str:
    """The question for the syntax tree of what would run."""
    return f"EXPLAIN AST {passed.body}"


def shape_of(passed: Passed) -> str | None:
    """A SELECT without the values of its literals; None where a verdict depends on them, or the whole is judged by its words.

    Literals are told by the engine's own spelling. Of what its parser says nothing is judged by a literal's value but the structure that
    values() may begin with.
    """
    texts = [word.text for word in passed.words]
    if texts[0] not in ("SELECT", "WITH") or any(text.lower() == "values" for text in texts):
        return None
    return "\0".join(f"{word.kind}:{'' if word.kind in _LITERALS else word.text}" for word in passed.words)


@dataclass(frozen=True)
class Gate:
    """`known`: what the engine knows and may not be named."""

    known: Known

    def check(self, text: str, ask: Ask, values: Mapping[str, str], database: str = "", shapes: Shapes | None = None) -> Passed:
        """The statement as it may run. Blocks on the engine. Raises QueryRefusedError with the reason when it may not.

        `shapes`: what passed before, so that a statement that differs from one of them in its literals alone is not parsed again.
        """
        passed = self.spelled(ask(spelling(text), {}), database)
        shape = None if shapes is None else shape_of(passed)
        if shapes is not None and shape is not None and shapes.has(shape, database):
            return passed
        self.parsed(passed, ask(parsing(passed), values))
        if shapes is not None and shape is not None:
            shapes.keep(shape, database)
        return passed

    def spelled(self, statement: str, database: str = "") -> Passed:
        """Judges the engine's spelling of a statement by its words. Raises QueryRefusedError."""
        found = words(statement)
        if not found:
            raise QueryRefusedError("the query is empty; send SQL in `query` or in the body", SYNTAX_ERROR)
        self._names(found, database)
        _bound(found)
        texts = [word.text if word.kind == "word" else "" for word in found]
        if any(texts[at : at + 2] == ["INTO", "OUTFILE"] for at in range(len(texts))):
            raise QueryRefusedError("INTO OUTFILE would write a file on the server; redirect the output of your client", READONLY)
        if any(texts[at] == "SETTINGS" and found[at + 2].text == "=" for at in range(len(texts) - 2)):
            raise QueryRefusedError(NO_SETTINGS, READONLY)
        _plain_values(found)
        own = _format(found)
        if own is None:
            return Passed(statement.strip(), None, tuple(found))
        check_format(own)
        return Passed(statement[: found[-2].start].strip(), own, tuple(found[:-2]))

    def parsed(self, passed: Passed, explained: str) -> None:
        """Judges the syntax tree of a statement that `spelled` gave. Raises QueryRefusedError."""
        tree = nodes(explained)
        if tree[0].kind not in _READS | _SHOWS:
            raise QueryRefusedError(
                f"this endpoint is read-only and does not run {passed.words[0].text[:40]!r}; use SELECT, SHOW, DESCRIBE, EXPLAIN",
                READONLY,
            )
        for at, node in enumerate(tree):
            self._node(tree, at, node)
        written = sum(word.kind == "word" and word.text == "SELECT" for word in passed.words)
        if written > sum(node.kind == "SelectQuery" for node in tree):
            raise QueryRefusedError("there is a SELECT in a place that is not offered here; write it as a subquery in FROM", READONLY)
        _hidden_calls(passed.words, everywhere=tree[0].kind in _SHOWS)

    def _names(self, found: list[Word], database: str) -> None:
        tables = self.known.system_tables if database.lower() in SYSTEM_DATABASES else frozenset()
        for at, word in enumerate(found):
            if word.kind not in ("word", "name"):
                continue
            before = found[at - 1].text if at else ""
            lower = word.text.lower()
            if before == "." and at > 1 and found[at - 2].text.lower() in SYSTEM_DATABASES and lower not in allowed().system_tables:
                raise QueryRefusedError(f"the table {found[at - 2].text}.{word.text} is not offered here", READONLY)
            if lower in tables:
                raise QueryRefusedError(f"the table {word.text} of the system is not offered here", READONLY)
            called = at + 1 < len(found) and found[at + 1].text == "("
            outside = lower in self.known.functions and (called or before not in (".", "AS"))
            if outside or (called and lower in self.known.table_functions):
                raise QueryRefusedError(f"{word.text}() reaches outside the tables of this engine and is refused", READONLY)
            if word.kind == "name" and "\\" in word.text:
                raise QueryRefusedError("a name with a backslash or a control character in it is not offered here", READONLY)

    def _node(self, tree: list[Node], at: int, node: Node) -> None:
        if node.kind == "Function":
            if node.parent is not None and tree[node.parent].kind == "TableExpression":
                self._table_function(tree, at)
            elif not allowed().function(node.text):
                raise QueryRefusedError(f"the function {node.text}() is not offered here", READONLY)
        elif node.kind == "TableIdentifier":
            if not _PLAIN_TABLE.match(node.text):
                raise QueryRefusedError(f"there is no table {node.text[:80]!r}; SHOW TABLES lists them", READONLY)
            self._system(node.text)
        elif node.kind == "Identifier":
            self._system(node.text)
        elif node.kind == "Set":
            if node.parent is None or tree[node.parent].kind != "Explain":
                raise QueryRefusedError(NO_SETTINGS, READONLY)
        elif node.kind not in _PARTS and node.kind not in _READS and not (at == 0 and node.kind in _SHOWS):
            raise QueryRefusedError(f"a query with {node.kind} in it is not offered here", READONLY)

    def _table_function(self, tree: list[Node], at: int) -> None:
        name = tree[at].text
        if name.lower() not in allowed().table_functions and name not in self.known.views:
            raise QueryRefusedError(f"the table function {name}() reaches outside the tables of this engine and is refused", READONLY)
        if name.lower() != "values":
            return
        # The structure of a table may have expressions in it, which the tree does not show.
        first = next((node for node in tree[at + 1 :] if node.depth == tree[at].depth + 2), None)
        if first is None or first.kind != "Literal" or (first.text[:1] == "'" and not _plain_structure(first.text)):
            raise QueryRefusedError("values() takes plain values here, or names and types without expressions before them", READONLY)

    def _system(self, name: str) -> None:
        parts = name.lower().split(".")
        if len(parts) > 1 and parts[0] in SYSTEM_DATABASES and parts[1] not in allowed().system_tables:
            raise QueryRefusedError(f"the table {name} is not offered here", READONLY)


def check_format(name: str) -> None:
    """Raises QueryRefusedError for a form of answers that is not offered."""
    if name not in allowed().formats:
        raise QueryRefusedError(f"the format {name[:40]!r} is not offered here; use JSON, CSV, TSV, Arrow, Parquet …", UNKNOWN_FORMAT)


def _bound(found: list[Word]) -> None:
    for word in found:
        if word.kind == "bound" and "Identifier" in word.text:
            raise QueryRefusedError("a bound value cannot be a name here ({name:Identifier}); write the name into the query", READONLY)


def _plain_values(found: list[Word]) -> None:
    """The structure of a table may have expressions in it: as a bound value it would be judged once, and be another one the next time."""
    for at, word in enumerate(found[:-2]):
        called = word.kind in ("word", "name") and word.text.lower() == "values" and found[at + 1].text == "("
        if called and any(each.kind == "bound" for each in _bracketed(tuple(found), at + 1)):
            raise QueryRefusedError("values() takes no bound values here; write them into the query", READONLY)


def _format(found: list[Word]) -> str | None:
    if len(found) < 3 or found[-1].kind not in ("word", "name") or found[-2].kind != "word" or found[-2].text != "FORMAT":
        return None
    return None if found[-3].text in (".", ",", "AS") and found[-3].kind != "text" else found[-1].text


def _plain_structure(literal: str) -> bool:
    return bool(_STRUCTURE.match(literal)) and not _EXPRESSIONS.search(literal)


def _hidden_calls(found: tuple[Word, ...], everywhere: bool) -> None:
    """Returns calls that the tree does not show: the whole of a SHOW, and the arguments of APPLY."""
    for at, word in enumerate(found):
        if word.kind == "word" and word.text == "APPLY" and at + 1 < len(found):
            if found[at + 1].text != "(":
                _listed(found[at + 1])
            _calls(_bracketed(found, at + 1))
    if everywhere:
        _calls(found)


def _bracketed(found: tuple[Word, ...], at: int) -> tuple[Word, ...]:
    depth = 0
    for end in range(at, len(found)):
        depth += {"(": 1, ")": -1}.get(found[end].text if found[end].kind == "sign" else "", 0)
        if depth == 0 and end > at:
            return found[at : end + 1]
    return found[at:]


def _calls(found: tuple[Word, ...]) -> None:
    for word, following in itertools.pairwise(found):
        if word.kind == "word" and word.text == "SELECT":
            raise QueryRefusedError("there is a SELECT in a place that is not offered here; write it as a subquery in FROM", READONLY)
        if following.text == "(" and (word.kind == "name" or (word.kind == "word" and word.text not in _NO_CALLS)):
            _listed(word)


def _listed(word: Word) -> None:
    if not allowed().function(word.text):
        raise QueryRefusedError(f"the function {word.text}() is not offered here", READONLY)
