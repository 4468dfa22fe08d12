"""Splits a query into ClickHouse's tokens, far enough to know what kind of statement it is.

Holds: comments and literals are recognised as the engine does, so that nothing hides in them; a quoted name is a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainhouse.projections.errors import QueryRefused

SYNTAX_ERROR = 62

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | \#[!\s][^\n]* | /\*.*?\*/)
  | (?P<string>'(?:[^'\\]|\\.|'')*')
  | (?P<quoted>`(?:[^`\\]|\\.|``)*` | "(?:[^"\\]|\\.|"")*")
  | (?P<heredoc>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>\d[\w.]*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is word, name (quoted), literal or sign; `text` is unquoted for a name. `start` and `end` are positions in the query."""

    kind: str
    text: str
    start: int
    end: int


def tokens(query: str) -> list[Token]:
    """All tokens but blank space and comments. Raises QueryRefused when a literal or a comment does not end."""
    found = []
    for match in _TOKEN.finditer(query):
        group = match.lastgroup
        text = match[0]
        if group == "space":
            continue
        if group == "quoted":
            found.append(Token("name", re.sub(r"\\(.)", r"\1", text[1:-1]), match.start(), match.end()))
        elif group == "word":
            found.append(Token("word", text, match.start(), match.end()))
        elif group in ("string", "number", "heredoc", "tag"):
            found.append(Token("literal", text, match.start(), match.end()))
        else:
            if text in "'`\"" or query.startswith("/*", match.start()):
                raise QueryRefused(f"a quote or comment that begins at position {match.start()} does not end", SYNTAX_ERROR)
            found.append(Token("sign", text, match.start(), match.end()))
    return found
