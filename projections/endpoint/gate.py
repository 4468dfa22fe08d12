"""Which statements the endpoint runs: reads of one statement that touch nothing but the tables of this engine.

Holds: the engine's own `readonly = 1` refuses writes; this refuses what that lets through (measured): `INTO OUTFILE`, the scalar
`file()`, the table functions of object stores, `KILL QUERY`, `USE`, a second statement, and names of Python objects.
Never: changes a query, but for the FORMAT clause that it finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainhouse.projections.endpoint.lexer import SYNTAX_ERROR, Token, tokens
from trainhouse.projections.errors import QueryRefused

READONLY = 164
ALLOWED_STATEMENTS = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "FROM", "VALUES"})
# Table functions that read nothing from outside. Every other one that the engine knows is refused.
HARMLESS_TABLE_FUNCTIONS = frozenset(
    {"numbers", "numbers_mt", "zeros", "zeros_mt", "generateseries", "generate_series", "primes", "values", "sqlstandardvalues"}
    | {"null", "view", "viewifpermitted", "viewexplain", "merge", "format", "generaterandom", "fuzzjson", "fuzzquery"}
    | {"mergetreeindex", "mergetreeprojection", "mergetreetextindex", "mergetreecodecblockcounts", "mergetreeanalyzeindexes"}
)
OUTSIDE_FUNCTIONS = frozenset({"file", "reversednsquery", "catboostevaluate", "filesystemcapacity", "filesystemavailable"})


@dataclass(frozen=True, slots=True)
class Passed:
    """A query that may run. `format` is its own FORMAT, if any; `body` is the query without it and without a trailing `;`."""

    body: str
    format: str | None


@dataclass(frozen=True)
class Gate:
    """`table_functions` are the names that the engine knows, in lower case."""

    table_functions: frozenset[str]

    def check(self, query: str) -> Passed:
        """Raises QueryRefused with the reason when the query may not run."""
        found = tokens(query)
        while found and found[-1].text == ";" and found[-1].kind == "sign":
            found.pop()
        if not found:
            raise QueryRefused("the query is empty; send SQL in `query` or in the body", SYNTAX_ERROR)
        self._statement(found)
        self._calls(found)
        cut = _format_at(found)
        end = found[-1].end if cut is None else found[cut].start
        return Passed(query[:end], None if cut is None else found[cut + 1].text)

    def _statement(self, found: list[Token]) -> None:
        if any(t.kind == "sign" and t.text == ";" for t in found):
            raise QueryRefused("one statement at a time: there is text after a `;`", SYNTAX_ERROR)
        first = next((t for t in found if t.text != "("), found[0])
        if first.kind != "word" or first.text.upper() not in ALLOWED_STATEMENTS:
            raise QueryRefused(
                f"this endpoint is read-only and does not run {first.text[:40]!r}; use SELECT, SHOW, DESCRIBE, EXPLAIN", READONLY
            )
        words = [t.text.upper() if t.kind == "word" else "" for t in found]
        if "OUTFILE" in words and "INTO" in words:
            raise QueryRefused("INTO OUTFILE would write a file on the server; redirect the output of your client", READONLY)
        if words[0] == "SHOW" and "CREATE" not in words[:2] and "GRANTS" in words:
            raise QueryRefused("SHOW GRANTS is not offered here", READONLY)

    def _calls(self, found: list[Token]) -> None:
        for token, following in zip(found, [*found[1:], None], strict=False):
            if token.kind not in ("word", "name") or following is None or following.text != "(":
                continue
            name = token.text.lower()
            outside = name in self.table_functions and name not in HARMLESS_TABLE_FUNCTIONS
            if outside or name in OUTSIDE_FUNCTIONS or (name.startswith("ai") and name[2:3].isalpha() and name in _AI):
                raise QueryRefused(f"{token.text}() reaches outside the tables of this engine and is refused", READONLY)


_AI = frozenset({"airedact", "aisimilarity", "aifilter", "aiclassify", "aiembed", "aiextract", "aigenerate", "aitranslate"})


def _format_at(found: list[Token]) -> int | None:
    """Index of a trailing FORMAT clause's first token."""
    if len(found) >= 3 and found[-2].kind == "word" and found[-2].text.upper() == "FORMAT" and found[-1].kind in ("word", "name"):
        before = found[-3]
        if not (before.kind == "sign" and before.text in (".", ",")):
            return len(found) - 2
    return None
