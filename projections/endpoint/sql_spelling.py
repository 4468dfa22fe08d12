"""The words of a statement in the engine's own spelling, as its formatter writes them.

Holds: reads nothing but that spelling, which has no comments, no heredocs, one kind of quotes for text and one for names; whatever
else stands there is refused. One pass, no backtracking.
Never: reads a text as a user wrote it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainhouse.projections.errors import QueryRefusedError

SYNTAX_ERROR = 62

_WORD = re.compile(
    r"""
    (?P<space>[ \n]+)
  | (?P<text>'(?:[^'\\]|\\.|'')*')
  | (?P<name>`(?:[^`\\]|\\.|``)*`)
  | (?P<bound>\{[A-Za-z0-9_]+:[^{}`;]*\})
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>[0-9][A-Za-z0-9_.]*)
  | (?P<sign>->|-(?!-)|/(?!\*)|[(){}\[\],.*=<>!+%:?|^&@~])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """`kind` is word, name (it was in quotes, which `text` lacks), text, number, bound (`{name:Type}`) or sign."""

    kind: str
    text: str
    start: int


def words(statement: str) -> list[Word]:
    """All words. Raises QueryRefusedError for a character that the engine's formatter does not write outside quotes."""
    found, at = [], 0
    while at < len(statement):
        match = _WORD.match(statement, at)
        if match is None:
            raise QueryRefusedError(f"{statement[at : at + 20]!r} cannot stand in one statement that only reads", SYNTAX_ERROR)
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Word(kind, match[0][1:-1] if kind == "name" else match[0], at))
        at = match.end()
    return found
